"""The HTTP front: RabbitMQ's management API, what is ours besides, and its description.

node.py        what the front may ask of the node
app.py          the Starlette application: its operations
operations.py   what an operation is; logins and tags are checked here
access.py       who asks; visibility.py what they may see and touch
answers.py      JSON bodies, errors as JSON; texts.py names and arguments
listing.py      columns, order and pages of lists, made in slices
rates.py        rates of counters, from what readers saw; stats.py counts with their rates
overview.py, nodes.py, health.py, features.py                    the node
connections.py, channels.py                                      who is connected
exchanges.py, queues.py, queue_info.py, bindings.py, declaring.py   what there is
messages.py     publish and get
chronicles.py   what remembers, and where its copies are, at one moment
openapi.py      the description of all operations, and the page of it
backups.py      backup and restore as streams
streams.py      streams: what they hold, offsets, cursors; batches.py ranges as Arrow
server.py       uvicorn on a bound socket, inside the broker's loop
front.py        binds the socket at once and loads the two above only when it serves

Users, vhosts, policies and the like, and the search for messages, have modules of their names.
"""
