"""An option that needs a package that is not installed is one sentence with the command to run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

JOBS = ["--jobs-redis", "redis://127.0.0.1:1/0", "--jobs-postgres", "postgresql://127.0.0.1:1/jobs"]
OTEL = ["--otel-endpoint", "http://127.0.0.1:1/v1/traces"]
KEYS = ["--oauth2-resource-server-id", "hare", "--oauth2-keys", __file__]
CLUSTER = [
    *("--node", "a", "--cluster-listen", "127.0.0.1:1", "--cluster-peers", "a=127.0.0.1:1"),
    *("--cluster-secret", "sixteen bytes or more"),
]
# Run the command line without a package, as if it were not installed.
WITHOUT = (
    "import sys; sys.modules[sys.argv.pop(1)] = None; from leveret.cli.main import main; "
    "sys.exit(main())"
)


def refused(folder: Path, package: str, *words: str) -> str:
    """Run a command that must fail without a package; return the only line on stderr."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, package, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=folder,
        env=clean,
    )
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if "level=warning" not in line]
    return line


@pytest.mark.parametrize("cluster", [[], CLUSTER], ids=["alone", "cluster"])
@pytest.mark.parametrize(
    ("package", "flags", "option", "extra"),
    [
        ("redis", JOBS, "--jobs-postgres", "jobs"),
        ("hiredis", JOBS, "--jobs-postgres", "jobs"),
        ("asyncpg", JOBS, "--jobs-postgres", "jobs"),
        ("opentelemetry", OTEL, "--otel-endpoint", "otel"),
    ],
)
def test_an_option_of_the_broker_names_its_extra_at_the_start(
    tmp_path: Path, package: str, flags: list[str], option: str, extra: str, cluster: list[str]
) -> None:
    line = refused(
        tmp_path, package, "serve", "--amqp-port", "0", "--http-port", "0", *flags, *cluster
    )
    assert line.startswith(f"leveret serve: cannot start: {option}: ")
    assert line.endswith(f"pip install 'leveret[{extra}]'")


def test_keys_of_tokens_name_their_extra(tmp_path: Path) -> None:
    line = refused(tmp_path, "cryptography", "serve", "--amqp-port", "0", "--http-port", "0", *KEYS)
    assert line.startswith("leveret serve: cannot start: --oauth2-keys: ")
    assert line.endswith("pip install 'leveret[oauth2]'")


def test_the_event_loop_is_named(tmp_path: Path) -> None:
    line = refused(tmp_path, "uvloop", "serve", "--event-loop", "uvloop")
    assert line == (
        "leveret serve: cannot start: --event-loop: uvloop is not installed: run pip install"
        " uvloop, or choose auto"
    )
