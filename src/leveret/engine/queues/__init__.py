"""Queues: accept messages, deliver them to consumers, take them back, and enforce limits.

`queue.py` has the busy path. Each other module is one subject of a queue: functions on its state.
"""
