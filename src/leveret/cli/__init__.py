"""The command line: parsing and printing only.

main.py         entry point; `serve` starts without Typer, everything else goes through it
serve.py        flags of `leveret serve`, made from the option table, then the runtime
tree.py         the Typer application that all other commands hang on, or the group called
ctl.py          `leveret ctl …`: asks a running broker over HTTP
backup.py       backup and restore
files.py        dump and repair of a stopped broker's files
options.py      what those commands share
management.py   the HTTP client behind them
perf.py         `leveret perf`: load a broker and measure it
"""
