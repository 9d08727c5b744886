"""The engine: one queue state machine for every front. Pure and deterministic.

Nouns:

- `Message`   one copy of a published message, in one queue
- `Queue`     ready, in flight and scheduled messages, its consumers and its limits
- `Exchange`  routes a key and headers to queues and further exchanges by its bindings
- `Session`   holder of deliveries, such as an AMQP channel
- `Consumer`  a subscription of a session to a queue
- `Outlet`    the way out for the deliveries of several sessions: a connection, with its credit
- `Vhost`     a name space of exchanges and queues
- `Turn`      the effects of one turn of the event loop, as columns, until they are performed
- `TimerQueue`  all wake-ups of the node, by due time
- `Broker`    all vhosts, and the turns in which commands change them

The engine reads no clock, opens no file or socket and draws no random number. Time is the turn's
`now_ms`; names and seeds come with the commands. The same commands at the same times give the same
state and the same effects.
"""
