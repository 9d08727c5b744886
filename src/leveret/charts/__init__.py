"""Charts and tables as one HTML page. Used by the pipeline's reports, `perf` and the benchmark."""
