"""The store of Raft groups against a model: random work, with power cuts at every step.

- `model`  the state that each group must find again, for every block
- `run`    one run: groups, their work, power cuts and starts, all from one seed
"""
