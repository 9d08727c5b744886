"""Read, filter, redrive and delete the dead letters of a service."""
