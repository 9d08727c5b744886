"""The files for deployment agree with the program: metrics, options, paths, stop signal.

Docker, Grafana and Prometheus cannot run here. systemd-analyze checks the unit where it is
installed.
"""

import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer.main
import yaml

from leveret.cli.pipeline.app import app as pipeline_app
from leveret.config.load import load
from leveret.config.settings import env_name, flag_name, options
from leveret.http.app import OPERATIONS
from leveret.runtime.clustered import node_settings
from tools import build_wheels

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
FAMILY = re.compile(r"^\| `(\w+)` \| (\w+) \|", re.M)
UNITS = ("leveret.service", "leveret@.service")
LAKE_UNITS = ("leveret-lake.service", "leveret-lake.timer")
METRIC = re.compile(r"\b(?:rabbitmq|leveret)_\w+\b")


def known_metrics() -> set[str]:
    """Return the series that docs/metrics.md names."""
    found: set[str] = set()
    for name, kind in FAMILY.findall((ROOT / "docs" / "metrics.md").read_text()):
        found.add(name)
        if kind == "histogram":
            found |= {f"{name}_{part}" for part in ("bucket", "sum", "count")}
    return found


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load((DEPLOY / "prometheus-rules.yaml").read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    return found


def test_alerts_use_metrics_that_exist() -> None:
    known = known_metrics()
    for rule in rules():
        assert set(METRIC.findall(rule["expr"])) <= known, rule["alert"]
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
    assert len({rule["alert"] for rule in rules()}) == len(rules())


def test_alerts_cover_the_faults_of_the_jobs_service() -> None:
    watched = {name for rule in rules() for name in METRIC.findall(rule["expr"])}
    faults = ("server_up", "server_takes_changes", "clock_skew_seconds", "flush_lag_seconds")
    assert {f"leveret_jobs_{name}" for name in faults} <= watched
    assert {"leveret_jobs", "leveret_jobs_oldest_ready_age_seconds"} <= watched


def test_alerts_of_the_documents_are_those_of_the_rules() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    [shown] = re.findall(r"^```yaml\n(- alert.*?)^```", page, re.M | re.S)
    loaded = {frozenset(METRIC.findall(r["expr"])): (r["alert"], r["expr"]) for r in rules()}
    for rule in yaml.safe_load(shown):
        own = (f"Leveret{rule['alert']}", rule["expr"])
        assert loaded.get(frozenset(METRIC.findall(rule["expr"])), own) == own


def test_dashboard_uses_metrics_that_exist() -> None:
    known, board = known_metrics() | {"leveret_build_info"}, dashboard()
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert panels
    for panel in panels:
        for target in panel["targets"]:
            names = METRIC.findall(target["expr"])
            assert names and set(names) <= known, panel["title"]
    for variable in board["templating"]["list"]:
        assert set(METRIC.findall(variable["query"])) <= known


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def test_image_uses_options_and_paths_that_exist() -> None:
    text = (ROOT / "Dockerfile").read_text()
    known = {env_name(name) for name in options()}
    assert set(re.findall(r"LEVERET_\w+", text)) <= known
    assert set(re.findall(r"127\.0\.0\.1:15672(/[\w/]+)", text)) <= {op.path for op in OPERATIONS}
    sources = re.findall(r"^COPY (?!--)(.+) \S+$", text, re.M)
    copied = [name for source in sources for name in source.split()]
    for name in copied:
        assert (ROOT / name).exists(), name
    # The package links to documents. The image would lack those that are not copied.
    links = (path for path in (ROOT / "src").rglob("*") if path.is_symlink())
    assert {path.resolve().relative_to(ROOT).parts[0] for path in links} <= set(copied)
    assert re.search(r"^USER leveret$", text, re.M)
    assert "STOPSIGNAL SIGTERM" in text
    ignored = (ROOT / ".dockerignore").read_text().split()
    for name in copied:
        assert f"!{name}" in ignored


@pytest.mark.parametrize("name", ["compose.yaml", "compose.cluster.yaml"])
def test_compose_file_uses_options_and_volumes_that_exist(name: str) -> None:
    composed = yaml.safe_load((ROOT / name).read_text())
    known = {env_name(name) for name in options()}
    for service in composed["services"].values():
        assert set(service["environment"]) <= known
        for volume in service["volumes"]:
            name, _, path = volume.partition(":")
            assert name in composed["volumes"]
            assert f"VOLUME {path}\n" in (ROOT / "Dockerfile").read_text()


def test_nodes_of_the_compose_file_form_one_cluster() -> None:
    composed = yaml.safe_load((ROOT / "compose.cluster.yaml").read_text())
    services = composed["services"]
    assert sorted(services) == ["a", "b", "c"]
    ports = [port.partition(":")[0] for each in services.values() for port in each["ports"]]
    assert len(set(ports)) == len(ports) == 6
    assert len({each["volumes"][0] for each in services.values()}) == 3
    for name, service in services.items():
        given = {key: value for key, value in service["environment"].items() if "$" not in value}
        secret = {"LEVERET_CLUSTER_SECRET": "s" * 32, "LEVERET_DEFAULT_PASS": "p" * 12}
        settings = load({}, {**given, **secret})
        assert settings.node == name
        assert sorted(node_settings(settings).peers) == sorted(services)
        assert str(node_settings(settings).peers[name]) == f"{name}:25672"  # names in the network


def test_variables_of_the_cluster_unit_are_options() -> None:
    text = (DEPLOY / "leveret@.service").read_text()
    known = {env_name(name) for name in options()}
    assert set(re.findall(r"LEVERET_\w+", text)) <= known
    assert "Environment=LEVERET_NODE=%i LEVERET_DATA=/var/lib/leveret-%i\n" in text
    assert "StateDirectory=leveret-%i\n" in text


def test_both_units_protect_the_machine_alike() -> None:
    alone, member = (
        {line for line in (DEPLOY / name).read_text().splitlines() if not line.startswith("#")}
        for name in UNITS
    )
    own = ("Description=", "Environment", "ExecStart=", "StateDirectory=")
    assert [line for line in alone ^ member if not line.startswith(own)] == []


@pytest.mark.parametrize("name", UNITS)
def test_unit_uses_flags_that_exist(name: str) -> None:
    text = (DEPLOY / name).read_text()
    [command] = re.findall(r"^ExecStart=(.+)$", text, re.M)
    known = {flag_name(name) for name in options()}
    assert set(re.findall(r"--[\w-]+", command)) <= known


@pytest.mark.parametrize("name", [*UNITS, *LAKE_UNITS])
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_unit_is_valid(tmp_path: Path, name: str) -> None:
    unit = tmp_path / name.replace("@", "@a")
    for each in (name, *LAKE_UNITS):  # a timer names its service
        text = (DEPLOY / each).read_text().replace("/opt/leveret/bin/leveret", "/bin/true")
        (tmp_path / each.replace("@", "@a")).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line for line in done.stderr.splitlines() if unit.name in line] == []


def test_commands_of_the_lake_unit_and_of_airflow_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow is not installed here: a stand-in notes the tasks of the example."""
    [unit] = re.findall(
        r"^ExecStart=\S+/leveret (.+)$", (DEPLOY / "leveret-lake.service").read_text(), re.M
    )
    noted: dict[str, StandInTask] = {}
    for name, member, value in (
        ("airflow.sdk", "DAG", StandInDag),
        (
            "airflow.providers.standard.operators.bash",
            "BashOperator",
            lambda **given: noted.setdefault(given["task_id"], StandInTask(given)),
        ),
    ):
        module = ModuleType(name)
        setattr(module, member, value)
        monkeypatch.setitem(sys.modules, name, module)
    runpy.run_path(str(ROOT / "examples" / "airflow_lake.py"))
    assert [task.given["task_id"] for task in noted["run"].later] == ["status"]
    commands = [task.given["bash_command"].removeprefix("leveret ") for task in noted.values()]
    assert len(commands) == 3
    group: Any = typer.main.get_command(pipeline_app)
    for words in ([*unit.split()], *(command.split() for command in commands)):
        assert words[0] == "pipeline"
        group.commands[words[1]].make_context(words[1], words[2:])  # raises for unknown options
    for task in noted.values():
        names = set(task.given["env"])
        assert names == {"LEVERET_URL", "LEVERET_LAKE"}


class StandInTask:
    """A task of Airflow, as far as the example uses it."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.retries: int | None = None
        self.later: list[StandInTask] = []

    def __rshift__(self, other: "StandInTask") -> "StandInTask":
        self.later.append(other)
        return other


class StandInDag:
    """A DAG of Airflow: it must not overlap with itself, nor catch up."""

    def __init__(self, **given: Any) -> None:
        assert given["max_active_runs"] == 1 and given["catchup"] is False

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_release_notes_come_from_the_changelog() -> None:
    notes = build_wheels.release_notes()
    assert notes.startswith("# Leveret ")
    assert "### Added" in notes
