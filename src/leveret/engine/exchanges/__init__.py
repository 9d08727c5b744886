"""Exchanges: find the targets of the bindings that match a routing key and headers.

- `Binding`   a rule of an exchange: what to match, and the queue or exchange to send to
- `Exchange`  owns its bindings; each exchange type is one file and one subclass, with its own index
- `Headers`   the headers and properties of the message being routed, decoded on demand

An exchange only knows its own bindings. `router` follows bindings between exchanges, uses alternate
exchanges, and makes sure that each queue gets one copy. `registry` knows all types.
"""
