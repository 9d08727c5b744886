"""Exchanges: from a routing key and headers to the targets of matching bindings.

Nouns:

- `Binding`   a rule of an exchange: what to match and the queue or exchange to lead to
- `Exchange`  owns its bindings; each type is one file and one subclass, with an index of its own
- `Headers`   the message being routed, decoded only as far as somebody asks

An exchange answers for itself alone: exchange-to-exchange bindings, alternate exchanges and "one
copy per queue" are the work of `leveret.engine.exchanges.router`. `registry` knows all types.
"""
