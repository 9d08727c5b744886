"""The command line `leveret`: parse arguments, call the part that does the work, print its result.

main.py           entry point; starts `serve` and `ctl status` without Typer, and Typer for the rest
serve.py          `leveret serve`: run the broker; its flags come from the option table
app.py            the Typer application with all command groups
config.py         `leveret config`: check and show the configuration
perf.py           `leveret perf`: load a broker and measure it
perf_progress.py  the live table that `leveret perf` shows while it runs
reference.py      writes docs/cli.md from the commands
ctl/              `leveret ctl`: inspect and change a running broker, or the files of a stopped one
jobs/             `leveret jobs`: enqueue, dequeue and watch jobs
bus/              `leveret bus`: run services of the event bus and handle dead letters
pipeline/         `leveret pipeline`: the data pipeline on Spark
shared/           options, output and the HTTP client that several groups use
"""
