"""Hold the messages of one queue: ready, scheduled, unacked, or paged out to the log.

These structures know messages and the journal, and nothing of queues, sessions or vhosts.
"""
