"""Deliver events to an HTTP endpoint."""
