"""Encode and decode AMQP field tables and content headers.

- `scan`        checks and searches encoded field tables without decoding them
- `tables`      field tables: bytes to values and back
- `properties`  content headers: bytes to properties and back
- `property_flags`  the bits that say which properties a content header has
"""
