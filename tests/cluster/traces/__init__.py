"""Scripted cases: what members do, command by command, as text that can be read.

A file is prose and steps, apart by empty lines. A step is commands, a line `----`, and what they
print. `python -m tests.cluster.traces NAME` runs files and shows where they differ; `--write`
writes what is printed now, to be read before it is believed. `Theatre` lists the commands.
"""
