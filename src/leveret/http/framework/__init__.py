"""How an HTTP resource is written: operations, logins, permissions, lists, answers."""
