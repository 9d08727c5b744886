"""Takes the broker away from a bus, in every way there is, and counts the messages.

`proxy` stands between the two, `losses` are the ways, `ledger` counts, `run` plays rounds.
"""
