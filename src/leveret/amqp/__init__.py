"""The AMQP 0-9-1 front, as RabbitMQ speaks it.

- `ConnectionBase`  login, limits, permission checks and output buffer of one connection
- `Channel`         one channel: incoming content, deliveries, confirms, transactions
- `Connection`      decodes frames and drives the state machines of connection and channels
- `handlers/`       the methods of AMQP, one module per AMQP class
- `sockets`         reads and writes the sockets, and controls the flow
- `server`          listens and stops; the only module here that awaits

All modules except `sockets` and `server` are free of I/O. Bytes go in through `Connection.feed` and
come out of `ConnectionBase.take_output`. The time comes with the engine's turn.
"""
