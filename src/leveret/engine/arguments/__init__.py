"""Check what clients and operators ask of a queue, a consumer, an exchange or a policy.

Everything here is pure: it turns a table of arguments into settings, or refuses it.
"""
