"""The suites: where each comes from, how it is run, and what of it is left out and why.

Tests are left out only where the suite needs something beside a broker (TLS certificates that its
archive lacks, a management plug-in, a proxy server); the reason is printed with the report. A
suite that insists on port 5672 of this machine gets a relay there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.clients.suites import outcomes
from tests.clients.suites.outcomes import Outcomes
from tests.clients.suites.workshop import HERE, UnavailableError, Workshop, pinned_version, program

Address = tuple[str, int]
TEST_LIMIT_S: Final = 120
# Published by npm up to this version; later packages leave their tests out.
AMQPLIB_VERSION: Final = "2.2.0"
AMQPLIB_UNITS: Final = ("bitset", "channel", "codec", "connection", "data", "frame")
AMQP091_GO_VERSION: Final = "1.5.0"  # Debian 12's
BUNNY_VERSION: Final = "2.19.0"


@dataclass
class Suite:
    """One library's tests; subclasses say how to obtain and run them."""

    name: str
    version: str
    limit_s: int
    on_5672: bool = False  # the suite connects to localhost:5672, whatever one tells it
    left_out: dict[str, str] = field(default_factory=dict)  # option value -> reason

    def obtain(self, workshop: Workshop) -> Path:
        raise NotImplementedError

    def run(
        self, workshop: Workshop, source: Path, address: Address, tests: Sequence[str]
    ) -> Outcomes:
        """The outcomes of all tests, or of the named ones (and possibly of their neighbours)."""
        raise NotImplementedError


@dataclass
class PytestSuite(Suite):
    """Tests of a Python package, from its source distribution or a folder that was given."""

    paths: tuple[str, ...] = ("tests",)
    options: tuple[str, ...] = ()
    in_sdist: bool = True

    def obtain(self, workshop: Workshop) -> Path:
        if given := workshop.given(self.name):
            return workshop.copy(given, self.name)
        if not self.in_sdist:
            raise UnavailableError(
                f"its source distribution has no tests: give a checkout of version {self.version}"
                f" with --source {self.name}=FOLDER"
            )
        return workshop.copy(workshop.sdist(self.name, self.version), self.name)

    def run(
        self, workshop: Workshop, source: Path, address: Address, tests: Sequence[str]
    ) -> Outcomes:
        results = workshop.build / f"{self.name}.results"
        results.write_text("")
        host, port = address[0], str(address[1])
        environment = {
            "PYTHONPATH": str(HERE),
            "LEVERET_SUITE_RESULTS": str(results),
            "LEVERET_SUITE_HOST": host,
            "LEVERET_SUITE_PORT": port,
            "RABBITMQ_HOST": host,
            "RABBITMQ_5672_TCP": port,
        }
        quiet = ["-q", "-p", "no:cacheprovider", "-p", "record_outcomes", "--tb=short"]
        limits = ["--timeout", str(TEST_LIMIT_S), "-o", "log_cli=false"]
        command: list[str | Path] = [
            workshop.python(),
            "-m",
            "pytest",
            *quiet,
            *limits,
            *self.options,
        ]
        command += tests or self.paths
        workshop.run(self.name, command, env=environment, cwd=source, limit_s=self.limit_s)
        return outcomes.read_pytest(results.read_text())


@dataclass
class NodeSuite(Suite):
    """Tests of an npm package, one process per file of node's own test runner."""

    def obtain(self, workshop: Workshop) -> Path:
        source = workshop.given(self.name) or workshop.npm_package(self.name, self.version)
        return workshop.copy(source, self.name)

    def run(
        self, workshop: Workshop, source: Path, address: Address, tests: Sequence[str]
    ) -> Outcomes:
        node = program("node", "nodejs")
        environment = {"URL": f"amqp://{address[0]}:{address[1]}"}
        wanted = {test.partition("::")[0] for test in tests}
        found: Outcomes = {}
        for file in sorted(source.glob("test/*.test.js")):
            name = f"test/{file.name}"
            if name in self.left_out or (wanted and name not in wanted):
                continue
            command: list[str | Path] = [node, "--test-reporter=tap", file]
            report = workshop.run(
                self.name, command, env=environment, cwd=source, limit_s=self.limit_s
            )
            found |= outcomes.read_tap(report, name)
        return found


@dataclass
class RspecSuite(Suite):
    """Bunny's specs on Debian's Ruby packages, as the user guest in the vhost /."""

    # The specs name a user and a vhost of their own, which a fresh broker does not have.
    names: tuple[tuple[str, str], ...] = (
        (r"bunny_gem\b", "guest"),
        (r"bunny_password", "guest"),
        (r"bunny_testbed", "/"),
    )

    def obtain(self, workshop: Workshop) -> Path:
        program("rspec", "ruby-rspec")
        given = workshop.given(self.name)
        source = given or workshop.debian_source("ruby-bunny", self.version)
        copy = workshop.copy(source, self.name)
        for spec in copy.glob("spec/**/*.rb"):
            text = spec.read_text()
            for pattern, replacement in self.names:
                text = re.sub(pattern, replacement, text)
            spec.write_text(text)
        return copy

    def run(
        self, workshop: Workshop, source: Path, address: Address, tests: Sequence[str]
    ) -> Outcomes:
        rspec = program("rspec", "ruby-rspec")
        wanted = {test.partition("::")[0] for test in tests}
        results = workshop.build / f"{self.name}.results"
        found: Outcomes = {}
        for spec in sorted(source.glob("spec/**/*_spec.rb")):
            name = f"./{spec.relative_to(source)}"
            if name in self.left_out or (wanted and name not in wanted):
                continue
            results.write_text("")
            # Where CI is set, the specs leave half of themselves out.
            command: list[str | Path] = ["env", "-u", "CI", rspec, "-I", HERE / "ruby", "-I", "lib"]
            command += ["--format", "json", "--out", results, name]
            workshop.run(self.name, command, env={}, cwd=source, limit_s=self.limit_s)
            found |= outcomes.read_rspec(results.read_text())
        return found


@dataclass
class GoSuite(Suite):
    """The integration tests of RabbitMQ's Go client, which Debian ships with its sources."""

    package: str = "github.com/rabbitmq/amqp091-go"
    debian: tuple[str, ...] = ("golang-github-rabbitmq-amqp091-go-dev", "golang-uber-goleak-dev")

    def obtain(self, workshop: Workshop) -> Path:
        program("go", "golang-go")
        sources = workshop.debian_packages(*self.debian) / "usr" / "share" / "gocode"
        return workshop.copy(sources, self.name)

    def run(
        self, workshop: Workshop, source: Path, address: Address, tests: Sequence[str]
    ) -> Outcomes:
        environment = {
            "GOPATH": str(source),
            "GOCACHE": str(workshop.build / "go-cache"),
            "GO111MODULE": "off",
            "AMQP_URL": f"amqp://guest:guest@{address[0]}:{address[1]}/",
        }
        only = "|".join(f"^{test.partition('::')[2].partition('/')[0]}$" for test in tests)
        options = ["-count=1", "-json", "-tags", "integration", "-timeout", f"{self.limit_s}s"]
        command = [program("go", "golang-go"), "test", *options, "-run", only or ".", "."]
        events = workshop.run(
            self.name,
            command,
            env=environment,
            cwd=source / "src" / self.package,
            limit_s=self.limit_s,
        )
        return outcomes.read_go(events, self.package)


def all_suites() -> list[Suite]:
    return [
        PytestSuite(
            "amqp",
            pinned_version("amqp"),
            limit_s=300,
            paths=("t/integration",),
            options=("-k", "not tls"),
            left_out={"tls": "certificates that are not in the source distribution"},
        ),
        PytestSuite(
            "kombu",
            pinned_version("kombu"),
            limit_s=600,
            paths=("t/integration/test_py_amqp.py",),
        ),
        PytestSuite(
            "aiormq",
            pinned_version("aiormq"),
            limit_s=3000,
            options=("-p", "given_broker", "-k", "not amqps"),
            left_out={"amqps": "TLS listeners with the suite's certificates"},
        ),
        PytestSuite(
            "aio-pika",
            pinned_version("aio-pika"),
            limit_s=3600,
            options=("-p", "given_broker", "--ignore", "tests/test_amqps.py"),
            left_out={"tests/test_amqps.py": "TLS listeners with the suite's certificates"},
        ),
        PytestSuite(
            "pika",
            pinned_version("pika"),
            limit_s=1800,
            on_5672=True,
            in_sdist=False,
            paths=("tests/acceptance",),
        ),
        NodeSuite(
            "amqplib",
            AMQPLIB_VERSION,
            limit_s=300,
            on_5672=True,
            left_out=dict.fromkeys(
                (f"test/{part}.test.js" for part in AMQPLIB_UNITS),
                "no broker but a package of its own: unit tests",
            ),
        ),
        GoSuite("amqp091-go", AMQP091_GO_VERSION, limit_s=300),
        RspecSuite(
            "bunny",
            BUNNY_VERSION,
            limit_s=600,
            on_5672=True,
            left_out={
                "./spec/higher_level_api/integration/tls_connection_spec.rb": "TLS certificates",
                "./spec/higher_level_api/integration/toxiproxy_spec.rb": "a toxiproxy server",
                "./spec/stress/merry_go_round_spec.rb": (
                    "an order that its own thread pools do not keep, on RabbitMQ as well"
                ),
                "./spec/higher_level_api/integration/connection_recovery_spec.rb": (
                    "RabbitMQ's management API and a Ruby client for it"
                ),
            },
        ),
    ]
