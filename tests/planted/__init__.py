"""Bugs that are planted into a copy of the sources to see the suite catch them.

- `bugs`         the table: what is changed where, and which tests must notice
- `test_planted` plants each one and runs its tests

A bug whose text is no longer in the sources fails the test: the table stays in step with the code.
"""
