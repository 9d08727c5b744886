"""The tools that resources are written with: operations, logins, permissions, lists, responses."""
