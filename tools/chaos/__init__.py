"""Kills a broker again and again while it is used, and keeps accounts of every message.

- `accounts`     what was sent, confirmed, seen and settled, and what is wrong with that
- `bodies`       messages that say who sent them and whether they are whole
- `publishers`   confirmed publishing, many connections, queues of all sorts
- `consumers`    deliveries, acks, rejects, and how it is known that an ack is on disk
- `teller`       transactions that move tokens between two queues
- `run`          starts all of them, kills, and adds up
- `small_files`  `leveret serve` with log files so small that they come and go all the time
"""
