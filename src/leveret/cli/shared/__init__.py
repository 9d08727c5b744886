"""Code that several command groups use: options, output, and a client of the management API."""
