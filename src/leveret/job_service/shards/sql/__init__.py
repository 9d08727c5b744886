"""Everything that is sent to PostgreSQL as text: functions and claims."""
