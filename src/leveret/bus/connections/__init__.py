"""Connections of the event bus to a broker: open, declare, detect loss, recover."""
