"""The engine: one queue state machine for every front. Pure and deterministic.

Nouns:

- `Message`   one copy of a published message, in one queue
- `Queue`     ready, in flight and scheduled messages, its consumers and its limits
- `Exchange`  routes a key and headers to queues and further exchanges by its bindings
- `Session`   what holds deliveries: an AMQP channel, for one
- `Consumer`  a subscription of a session to a queue
- `Outlet`    where the deliveries of several sessions leave: a connection, with its credit
- `Vhost`     a name space of exchanges and queues
- `Turn`      everything that one turn of the event loop did, kept as columns until it is performed
- `TimerQueue` everything in the node that waits for a time
- `Broker`    all of it, and the commands that change it

The engine reads no clock, opens no file or socket and draws no random number: time is the turn's
`now_ms`, names and seeds come with the commands. The same commands at the same times give the same
state and the same effects.
"""
