"""The HTTP front: RabbitMQ's management API, our own additions, and their description.

framework    how a resource is written: operations, logins, permissions, lists, responses
management   RabbitMQ's management API, one resource per file
insight      search, trace and explain messages; pause queues; tasks
streams      streams and leased messages, as JSON and as Arrow
jobs         the jobs API: calls of clients, workers and operators
page         the web page for people: HTML, CSS and JavaScript
transport    sockets and uvicorn; the fast path for small calls
app.py       the table of all operations, and the Starlette application made from it
"""
