"""Leveret: a message broker for RabbitMQ's clients, with jobs, an event bus and a pipeline.

This module imports nothing, so that `import leveret` is cheap. Import the part that you need:
`leveret.embedded`, `leveret.testing`, `leveret.jobs`, `leveret.bus`. The version is written here
only; the metadata of the package and `leveret.build_info` read it from here.
"""

__version__ = "0.1.0"
