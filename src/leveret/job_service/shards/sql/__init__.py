"""Everything that a shard is sent as a script: the steps of its schema, as .sql files.

- `step_<number>_<subject>.sql`   one step of the schema; `migration.py` applies them in order
- `fragments/<name>.sql`          pieces that several functions share
- `loader.py`                     reads them and fills in the placeholders
"""
