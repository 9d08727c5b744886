"""The client libraries' own test suites, run against a broker and compared with RabbitMQ.

A *suite* is another project's tests in the version that we pin, obtained when it is run and never
kept here. `catalogue` says where each comes from and how it is started, `workshop` fetches and
runs, `outcomes` reads what the runners report, `baseline` holds what happens on RabbitMQ 3.10.8.
`given_broker` and `record_outcomes` are pytest plugins and `ruby` a load path for the suites' own
processes.
"""
