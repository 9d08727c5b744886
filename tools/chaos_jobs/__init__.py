"""Kills under load for the jobs service on Redis and PostgreSQL.

Nodes (`leveret serve`), workers and producers are processes; all except the servers are killed with
-9 while they work (`run.py`). Workers and producers record their requests and answers in a book
(`actor.py`). In the end all books are compared (`ledger.py`).
"""
