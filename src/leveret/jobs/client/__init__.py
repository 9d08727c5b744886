"""Clients of the jobs API: enqueue, dequeue and settle jobs over HTTP."""
