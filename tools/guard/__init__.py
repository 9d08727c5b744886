"""The regression guard: instructions of the hot paths, counted, against a recorded baseline.

- `stage`     a broker without sockets, clock or disk, and one peer of it
- `paths`     what is counted: publish, route, deliver, ack, confirm, log, recovery, streams
- `driver`    runs every path once, between two marks; started under valgrind
- `counting`  valgrind's callgrind around the driver, and what it counted
- `baseline`  the recorded counts, and what is out of bounds

Times depend on the machine and its mood, counts of instructions only on the code and what compiled
it: two runs of one build are equal. A change elsewhere can move a path by a few per cent, because
what was allocated before decides whether buffers grow in place; the bound is well above that. `make
guard` counts and compares, `make guard-update` records what was counted.
"""
