"""Configuration: every option declared once, loaded from file, environment and flags.

    option.py      an option, and how its text becomes a value
    settings.py    the options themselves, as one frozen object
    load.py        merges file, environment and flags; reports all faults together
    reference.py   prints docs/configuration.md

No module reads configuration globally: objects receive the `Settings`, or the one value they need.
"""
