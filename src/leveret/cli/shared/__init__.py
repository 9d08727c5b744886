"""What several commands share: options, output, and the HTTP client of the management API."""
