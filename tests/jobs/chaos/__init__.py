"""Kills workers and nodes of the jobs service while they work, and keeps a ledger of every job.

| nouns | |
| --- | --- |
| ledger | What became of each job, by the token of its lease; told by the workers, lives on. |
| worker | A process that takes jobs, applies them in the ledger and acknowledges them; is killed. |
| producer | A thread that puts in jobs and keeps the ids that it was told. |
| node | A `leveret serve` on its own data and always the same port; is killed. |

At the end nothing may be left, every id that a producer was told is in the ledger, no job was
handed out after its ack, tokens only rose, and a key made one job.
"""
