"""`leveret jobs`: enqueue and settle jobs, watch topics, handle dead jobs, and create tokens."""
