"""Take the broker away from a bus in six ways, and count the messages.

`proxy` stands between the two, `losses` are the ways, `ledger` counts, `run` plays rounds.
"""
