"""The jobs service: one contract for every store, and what each store has of its own."""
