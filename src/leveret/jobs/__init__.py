"""Jobs over HTTP: a typed client, a worker, and the service (`leveret.jobs.service`)."""
