"""Tasks that run beside the calls: flush to PostgreSQL, sweep the log, tick schedules, prefetch."""
