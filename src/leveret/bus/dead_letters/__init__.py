"""dead_letters."""
