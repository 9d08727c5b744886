"""Functions from frame to frame that flows use. They know no broker and no lake."""
