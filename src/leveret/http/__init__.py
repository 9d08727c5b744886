"""The HTTP front: health and version now; management API, jobs API and page are added here.

facts.py    what the front may ask of the node
app.py      the Starlette application: its routes
answers.py  JSON bodies, errors as JSON
access.py   who asks, and what they may see
queues.py   queues: lists, one of them, a look at its messages
backups.py  backup and restore as streams
streams.py  streams: what they hold, offsets, cursors
batches.py  ranges of a stream as Arrow
server.py   uvicorn on a bound socket, inside the broker's loop
front.py    binds the socket at once and loads the two above only when it serves
"""
