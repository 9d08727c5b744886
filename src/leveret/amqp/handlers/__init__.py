"""Handlers for the methods of AMQP, one module per AMQP class.

A handler gets the channel, and a reader that stands at the first argument. It checks permissions,
gives the command to the engine, and answers. Errors that it raises become closes in
`leveret.amqp.closing`. `leveret.amqp.dispatch` maps methods to handlers. The class `connection` is
different: its methods come on channel 0, and `leveret.amqp.rare_frames` calls its handlers.
"""
