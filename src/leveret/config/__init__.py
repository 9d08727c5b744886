"""Configuration: every option declared once, loaded from file, environment and flags.

option.py      what an option is, and how its text becomes a value
settings.py    the options themselves, as one frozen object
load.py        file < environment < flags; all faults reported together
reference.py   docs/configuration.md, generated

Nothing reads configuration globally: objects receive the `Settings`, or the one number they need.
"""
