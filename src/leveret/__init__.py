"""Leveret: a message broker that RabbitMQ's clients cannot tell from RabbitMQ.

Nothing is imported here: `import leveret` costs nothing, and each part is named by its own module
(`leveret.embedded`, `leveret.testing`, `leveret.runtime`). The version is written here only; the
package's metadata and `leveret.build_info` take it from this line.
"""

__version__ = "0.1.0"
