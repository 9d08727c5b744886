"""Everything that is sent to Redis: the pipelined connection and the Lua scripts."""
