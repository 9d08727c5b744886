"""Background tasks: flush to PostgreSQL, sweep the log, handle due jobs and schedules, prefetch."""
