"""Takes the broker away from a bus in many ways, and counts the messages.

`proxy` stands between the two, `losses` are the ways, `ledger` counts, `run` plays rounds.
"""
