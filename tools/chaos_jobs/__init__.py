"""Kills under load for the jobs service on Redis and PostgreSQL.

Nodes (`leveret serve`), workers and producers are processes; all but the servers are killed with
-9 while they work (`run.py`). Workers and producers write down what they asked and what they were
told (`actor.py`); the books are then balanced (`ledger.py`).
"""
