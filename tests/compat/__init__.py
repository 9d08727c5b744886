"""The compatibility test: the same situations against Leveret and against RabbitMQ.

- `wire`, `client`: a raw AMQP 0-9-1 client of their own, for any test that must see every frame;
- `case`, `stage`, `describe`: what a situation is, where it is played, how it is told in lines;
- `probe`: whether the machine held the broker up while a case about time was played;
- `cases`: the situations by topic, each with what Leveret must do and, where RabbitMQ 3.10 does
  something else, with that and the name of the entry in docs/differences.md;
- `brokers`, `differences`, `run`: both brokers as processes, the page, the comparison itself
  (`make compat`); `test_compat` checks Leveret alone in the test suite.

A new situation is a function in the file of its topic that plays it and returns lines. Its
observation comes from RabbitMQ, by `python -m tests.compat.run --only topic/name`, not from memory.
"""
