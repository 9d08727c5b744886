"""A cluster in one thread: real hosts of Raft groups on a simulated network, disk and clock.

- `World`     time, events, and the run of one seed: faults, then healing, then the last checks
- `Schedule`  how hard a run is
- `Node`      the edge of one node: drives a real `Host`, with several groups, as a process would
- `Disk`      what is written, what is synced, what a crash leaves
- `Network`   drops, delays, duplicates, cuts
- `Nemesis`   chooses faults
- `Clients`   publishers and consumers that send again what is not answered
- `Checker`   what must hold of one group, looked at after every event

Everything follows from the seed. `python -m tests.cluster.simulation --seed 7` replays one run.
"""
