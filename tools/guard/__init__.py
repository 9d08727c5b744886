"""The regression guard: counts the instructions of the hot paths against a recorded baseline.

- `stage`     a broker without sockets, clock or disk, and one peer
- `paths`     the counted paths: publish, route, deliver, ack, confirm, log, recovery, streams
- `driver`    runs every path once, between two marks; started under valgrind
- `counting`  runs the driver under valgrind's callgrind, and reads its counts
- `baseline`  the recorded counts, and the comparison with them

Times depend on the machine and its load. Counts of instructions depend only on the code and its
compiler: two runs of one build are equal. A change elsewhere can move a path by a few per cent,
because earlier allocations decide whether buffers grow in place; the limit is well above that.
`make guard` counts and compares, `make guard-update` records the counts.
"""
