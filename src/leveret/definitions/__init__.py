"""What operators define besides exchanges, queues and users; all of it is kept in the register.

- `Vhosts`       vhosts with their descriptions, tags and defaults
- `PolicyBook`   policies and operator policies
- `Limits`       of vhosts and of users
- `Parameters`   runtime parameters, of vhosts and global
- `Definitions`         all of them; what the node has one of
- `exporting`, `importing`   everything as one document, as RabbitMQ writes and reads it

Each keeps its own decoded form, writes every change through to the register, and tells the engine
what follows from it. Changes are made inside a turn of the engine.
"""

from leveret.definitions.definitions import Definitions

__all__ = ["Definitions"]
