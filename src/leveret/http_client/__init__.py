"""HTTP/1.1 clients for every part of Leveret that calls an HTTP server.

The package knows addresses, requests, answers and connections. It knows nothing of jobs, queues or
any other API.

- `address`, `requests`, `answers`   parse a URL, encode a request, read an answer; no sockets
- `connections`                      blocking connections, and a pool of them for threads
- `async_connections`                the same for an event loop
- `streamed_answer`                  an answer whose body is read piece by piece
- `tokens`                           bearer tokens that are renewed when a server refuses them
- `errors`                           every error that a call can end in
"""
