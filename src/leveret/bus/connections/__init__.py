"""Connections to the broker: one that answers in time, one that recovers, and declaring."""
