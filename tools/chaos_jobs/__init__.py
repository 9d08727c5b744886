"""Kills under load for the jobs service on Redis and PostgreSQL.

Nodes (`leveret serve`), workers and producers are processes. All of them are killed with -9 while
they work (`run.py`); Redis and PostgreSQL are not. Workers and producers write every request and
its answer to a file (`actor.py`). In the end the files are checked against each other
(`ledger.py`).
"""
