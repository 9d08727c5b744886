"""The store of Raft groups against a model: random work, power cuts at every step of it.

- `model`  what each group must find again, as of every block
- `run`    one run: groups, their work, power cuts and starts, all from one seed
"""
