"""A cluster in one thread: real members on a simulated network, disk and clock.

- `World`     time, events, and the run of one seed: faults, then healing, then the last checks
- `Schedule`  how hard a run is
- `Node`      hosts a real `Raft` member, as a process would
- `Disk`      written and synced data, and the state after a crash
- `Network`   drops, delays, duplicates, cuts
- `Nemesis`   chooses faults
- `Checker`   the rules, checked after every event

Everything follows from the seed. `python -m tests.cluster.simulation --seed 7` replays one run.
"""
