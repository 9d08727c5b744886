"""Hold the messages of one queue: ready, scheduled, unacked, and those that are only in the log.

These structures know messages and the journal, and nothing of queues, sessions or vhosts.
"""
