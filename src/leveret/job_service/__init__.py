"""The jobs service: its contract (`store.py`), its limits, and the two stores that keep jobs."""
