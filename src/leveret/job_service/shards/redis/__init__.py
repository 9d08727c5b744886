"""Everything that is sent to Redis: the client, the pipelined connection, the Lua scripts."""
