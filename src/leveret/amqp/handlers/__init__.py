"""What the methods of each AMQP class do: one module for each class.

A handler takes the channel and a reader at the first argument. It checks, gives the command to the
engine, and answers; errors are raised and become closes in `leveret.amqp.closing`.
`leveret.amqp.dispatch` is the table from method to handler. The class `connection` is apart: its
methods come on no channel, and `leveret.amqp.rare_frames` leads there.
"""
