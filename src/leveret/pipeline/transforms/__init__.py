"""What flows do to tables: plain functions from frame to frame, with no broker and no lake."""
