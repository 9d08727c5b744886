"""Other people's client libraries against a broker process started by `leveret serve`.

`conftest` starts the broker, `process` runs children and reads their output, `relay` is a TCP
relay that can be cut, `tools` finds programs that the machine must have. `apps` and `amqplib` hold
the small applications that run as their own processes. `run_suites` (`make clients`) runs the
client libraries' own test suites, described in `suites`, and compares with `baselines`.

LEVERET_TEST_AMQP=host:port runs everything here against a broker that is already there.
"""
