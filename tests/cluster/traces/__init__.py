"""Scripted cases: the actions of members, command by command, as readable text.

A file is prose and steps, separated by empty lines. A step is commands, a line `----`, and their
output. `python -m tests.cluster.traces NAME` runs files and shows where they differ. `--write`
writes the current output, which must be read before it is committed. `Theatre` lists the commands.
"""
