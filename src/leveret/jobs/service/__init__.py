"""The jobs service: what an HTTP front asks of a store of jobs, and the stores."""
