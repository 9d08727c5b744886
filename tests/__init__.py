"""The test suite; ARCHITECTURE.md says what each folder proves."""
