"""RabbitMQ's management API, one resource per file."""
