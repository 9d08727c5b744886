"""The AMQP 0-9-1 front, as RabbitMQ speaks it.

- `Link`        what is known of a peer, and the bytes that wait to be sent to it
- `Channel`     one channel: content being received, deliveries, confirms, transactions
- `Connection`  frames in, the state machine of connection and channels
- `handlers/`   one module for each AMQP class: what its methods do
- `sockets`     where bytes come and go, and who may send how much
- `server`      listens and stops; the only module here that awaits

Everything but these two is free of I/O: bytes go in by `Connection.feed`, bytes come out by
`Link.take_output`, time comes with the engine's turn.
"""
