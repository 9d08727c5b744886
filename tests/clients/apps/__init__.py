"""Small applications of task frameworks, run as worker processes by the tests.

Each module reads what it must know (broker, names) from LEVERET_APP_… variables, so that the same
module serves the worker process and, through its factory, the test that sends it work.
"""
