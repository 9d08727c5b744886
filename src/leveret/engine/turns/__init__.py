"""Collect the effects of one input: the turn, the sessions it concerns, and its counters."""
