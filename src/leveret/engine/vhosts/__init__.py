"""Virtual hosts: declare and delete exchanges, queues and bindings, and apply policies to them."""
