"""Kills a broker again and again under load, and accounts for every message.

- `accounts`     sent, confirmed, seen and settled messages, and the faults in them
- `bodies`       message bodies that carry their sender, number and checksum
- `publishers`   confirmed publishing over many connections, to all kinds of queues
- `consumers`    deliveries, acks, rejects, and proof that an ack is on disk
- `teller`       transactions that move tokens between two queues
- `run`          starts all of them, kills, and sums up
- `small_files`  `leveret serve` with very small log files, which come and go all the time
"""
