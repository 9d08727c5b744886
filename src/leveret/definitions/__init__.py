"""The objects that operators define, besides exchanges, queues and users; kept in the register.

- `VhostDefinitions`    vhosts with their descriptions, tags and defaults
- `PolicyDefinitions`   policies, or operator policies
- `LimitDefinitions`    limits of vhosts, or of users
- `Parameters`          runtime parameters of vhosts, and global parameters
- `Definitions`         all of these; a node has one
- `exporting`, `importing`   all definitions as one document, in RabbitMQ's form

Each class keeps the decoded values, writes every change to the register, and applies it to the
engine. Change definitions inside a turn of the engine.
"""

from leveret.definitions.definitions import Definitions

__all__ = ["Definitions"]
