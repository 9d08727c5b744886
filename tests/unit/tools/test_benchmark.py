"""The benchmark: bounds, rows, choice, documents; and a short run on a real broker of its own."""

import json
from pathlib import Path
from typing import Any

import pytest

from leveret.perf.load import Load
from tools.benchmark import history, profile, report
from tools.benchmark.backlog import measure_backlog
from tools.benchmark.brokers import leveret
from tools.benchmark.measure import LoadError, generate, measure, medians
from tools.benchmark.measures import MEASURES, Bound
from tools.benchmark.results import Row, load_all
from tools.benchmark.scaling import CURVES, scale_page
from tools.benchmark.scenarios import BACKLOG, IDLE, SCENARIOS, Scenario, choose
from tools.benchmark.sync_probe import SyncProbe


@pytest.mark.parametrize(
    ("bound", "ours", "theirs", "met"),
    [
        (Bound("rate", least=100), 100, None, True),
        (Bound("rate", least=100), 99, 1, False),
        (Bound("rate", most=100), 101, None, False),
        (Bound("rate", ratio_least=3), 30, 10, True),
        (Bound("rate", ratio_least=3), 29, 10, False),
        (Bound("rate", ratio_most=1), 10, 10, True),
        (Bound("rate", ratio_most=1), 11, 10, False),
        (Bound("rate", ratio_least=3), 30, None, None),
        (Bound("rate", least=100, ratio_least=3), 30, 10, True),
        (Bound("rate", least=100, ratio_least=3), 100, 50, True),
        (Bound("rate", least=100, ratio_least=3), 29, None, None),
    ],
)
def test_bound_is_met_by_its_limit_or_by_its_ratio(
    bound: Bound, ours: float, theirs: float | None, met: bool | None
) -> None:
    other = None if theirs is None else {"rate": theirs}
    assert bound.is_met({"rate": ours}, other) is met


@pytest.mark.parametrize(("sync_us", "met"), [(900.0, False), (1100.0, True)])
def test_more_is_asked_where_syncs_are_quick(sync_us: float, met: bool) -> None:
    bound = Bound("rate", ratio_least=3, ratio_least_fast_sync=5)
    assert bound.is_met({"rate": 40, "sync_us": sync_us}, {"rate": 10}) is met


def test_bound_reads_as_a_sentence() -> None:
    bound = Bound("rate", least=453_000, ratio_least=6)
    assert str(bound) == "received/s ≥ 453,000/s or ≥ 6× RabbitMQ"
    quick = Bound("rate", ratio_least=3, ratio_least_fast_sync=5)
    assert str(quick) == "received/s ≥ 3× RabbitMQ (5× if a sync takes < 1 ms)"


def test_median_is_taken_of_each_figure() -> None:
    rounds = [{"rate": 1.0, "share": 9.0}, {"rate": 5.0, "share": 1.0}, {"rate": 2.0, "share": 2.0}]
    assert medians(rounds) == {"rate": 2.0, "share": 2.0}


def test_ratio_is_above_one_when_leveret_is_better() -> None:
    flow = Scenario("f", "flow", Load(), ("rate", "share", "p50_us"))
    latency = Scenario("l", "latency", Load(), ("rate", "p50_us"))
    start = Scenario("s", "start", None, ("start_s",), kind=IDLE)
    figures = {"rate": 60.0, "share": 1.0, "p50_us": 90.0}
    assert Row(flow, [figures], [{"rate": 10.0, "share": 1.0, "p50_us": 9.0}]).ratio() == 6
    ours, theirs = {"rate": 1.0, "p50_us": 50.0}, {"rate": 1.0, "p50_us": 200.0}
    assert Row(latency, [ours], [theirs]).ratio() == 4
    assert Row(latency, [ours], []).ratio() is None
    assert Row(start, [{"start_s": 0.5}], [{"start_s": 5.0}]).ratio() == 10


def test_every_scenario_has_its_own_name_and_known_measures() -> None:
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS)
    assert len({scenario.key for scenario in SCENARIOS}) == len(SCENARIOS)
    for scenario in SCENARIOS:
        assert {*scenario.shows, *(bound.measure for bound in scenario.must)} <= set(MEASURES)
        for load in (scenario.load, scenario.beside):
            if load is not None:
                load.check()
        if scenario.load is not None and scenario.load.durable:
            assert "sync_us" in scenario.shows


def test_rows_are_chosen_by_key_family_and_part_of_the_name() -> None:
    def keys(rows: str) -> list[str]:
        return [scenario.key for scenario in choose(rows)]

    assert keys("stream,quorum") == ["quorum", "stream"]
    assert keys("fair") == ["fair-publishers", "fair-greedy", "fair-slow"]
    assert keys("300 KiB") == ["large"]
    assert keys("nothing") == []
    assert len(keys("all")) == len(SCENARIOS)
    assert all(scenario.kind != BACKLOG for scenario in choose(""))


def saved(rate: float, key: str = "transient") -> dict[str, Any]:
    (scenario,) = (s for s in SCENARIOS if s.key == key)
    ours = {**dict.fromkeys(MEASURES, 1.0), "rate": rate}
    theirs = {**dict.fromkeys(MEASURES, 1.0), "rate": 1000.0}
    return {
        "time": "2026-01-02T03:04:05+0000",
        "commit": "0123456789",
        "has_changes": False,
        "leveret": "leveret 1",
        "rabbitmq": "3.10",
        "rounds": 3,
        "seconds": 1.0,
        "machine": {
            "cpu": "a cpu",
            "cores": 2,
            "kernel": "6",
            "load_average_before": (0.1, 0, 0),
            "load_average_after": (0.2, 0, 0),
        },
        "scenarios": [Row(scenario, [ours], [theirs]).to_json()],
    }


def test_markdown_has_every_scenario_and_says_what_is_not_met() -> None:
    text = report.markdown(saved(5000.0))
    assert text.count("not measured | not measured") == len(SCENARIOS) - 1
    (line,) = (line for line in text.splitlines() if line.startswith("| transient, auto-ack"))
    assert "**not met**" in line
    assert "5,000/s" in line
    assert line.endswith("| 5.0× |")
    assert "load average 0.1 before and 0.2 after" in text


def test_page_is_written_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(report.PAGE.read_text())
    report.write_page(saved(5000.0), page)
    once = page.read_text()
    assert "5,000/s" in once
    report.write_page(saved(5000.0), page)
    assert page.read_text() == once
    page.write_text("no marks")
    with pytest.raises(ValueError, match="no place"):
        report.write_page(saved(1.0), page)


def test_history_is_drawn_and_shows_the_change(tmp_path: Path) -> None:
    for number, rate in enumerate((1000.0, 1500.0)):
        found = {**saved(rate), "time": f"2026-01-0{number + 1}T00:00:00"}
        (tmp_path / f"{number}.json").write_text(json.dumps(found))
    (tmp_path / "scale.json").write_text(json.dumps({**saved(1.0), "scenarios": []}))
    runs = [run for run in load_all([tmp_path]) if run["scenarios"]]
    assert [run["time"][:10] for run in runs] == ["2026-01-01", "2026-01-02"]
    assert "+50%" in history.table(runs)
    page = history.history_page(runs)
    assert page.count("<svg") >= 3
    assert "01-02 0123456" in page


def test_history_of_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert history.main([str(tmp_path), "--out", str(tmp_path / "x.html")]) == 1
    assert "no saved runs" in capsys.readouterr().err


def test_curves_are_drawn() -> None:
    points = [{"size": 1.0, "cpu_us": 1.0}, {"size": 10.0, "cpu_us": 2.0}]
    found = {**saved(1.0), "curves": {curve.key: points for curve in CURVES}}
    assert scale_page(found).count("<svg") == len(CURVES)


def test_syncs_are_timed(tmp_path: Path) -> None:
    with SyncProbe(tmp_path) as probe:
        pass
    assert probe.p50_us() > 0
    assert list(tmp_path.iterdir()) == []
    with SyncProbe(tmp_path, active=False) as probe:
        pass
    assert probe.p50_us() == 0


def test_broker_is_measured_filled_killed_and_drained(tmp_path: Path) -> None:
    shared = Scenario(
        "x",
        "x",
        Load(prefetch=10, burst=4),
        ("rate",),
        beside=Load(producers=2, consumers=0, rate=100, burst=1),
    )
    with leveret(tmp_path / "leveret") as broker:
        figures = measure(shared, broker, 0.3, tmp_path)
        assert figures["rate"] > 0
        assert figures["fair"] > 0
        assert figures["cpu_us"] > 0
        with pytest.raises(LoadError, match="406"):
            generate(Load(queue_type="nonsense"), broker, tmp_path)
        found = measure_backlog(broker, 500, tmp_path)
    assert found["restart"]["start_s"] > 0
    assert found["drain"]["rate"] > 0
    assert found["waiting"]["memory_mb"] > 1
    assert not (tmp_path / "leveret").exists()


def test_profile_gives_each_sample_to_one_cause() -> None:
    printed = """
        ffff8 copy_user ([kernel.kallsyms])
        ffff9 tcp_recvmsg ([kernel.kallsyms])
        7f001 __libc_read (/lib/libc.so.6)

        7f002 CPyDef_queue___Queue___push (/x/leveret__mypyc.cpython-311.so)
        7f003 _PyEval_EvalFrameDefault (/lib/libpython3.11.so.1.0)

        7f004 crc32_z (/lib/libz.so.1)

        7f005 malloc (/lib/libc.so.6)

        7f006 [unknown] (/lib/libodd.so)
""".splitlines()
    causes = [profile.cause_of(stack) for stack in profile.stacks(printed)]
    assert causes == [
        "sockets: receive",
        "compiled core",
        "checksum",
        "copying and memory",
        profile.OTHER,
    ]


def test_profile_is_a_table_with_sums() -> None:
    text = profile.table({"a": {"checksum": 0.5, "compiled core": 1.0}, "b": {"checksum": 0.25}})
    assert "| compiled core | 1.00 | 0.00 |" in text
    assert "| **all** | **1.50** | **0.25** |" in text
