"""Check the arguments of queues, consumers, exchanges and policies, and turn them into settings.

Everything here is pure: a table of arguments becomes settings, or is refused with an error.
"""
