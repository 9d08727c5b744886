"""Record what happens to a message during its life: life events and traces."""
