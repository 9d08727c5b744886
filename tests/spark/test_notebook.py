"""The example notebook runs from the first cell to the last."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.lake import Served

NOTEBOOK = Path(__file__).parents[2] / "examples" / "stream_to_chart.ipynb"


def run_cells(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Run the code of a notebook as its kernel would, in this process; return its variables.

    A kernel of its own would need a Spark session of its own.
    """
    found: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"cell {cell['id']}", "exec"), found)
    return found


def test_notebook_reads_follows_finds_and_replays(
    spark: SparkSession, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEVERET_URL", served.http)
    monkeypatch.setenv("AMQP_URL", served.server.url)
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    found = run_cells(cells)
    assert [(row.routing_key, row.orders) for row in found["by_country"]] == [
        ("de", 10),
        ("fr", 10),
        ("it", 10),
    ]
    assert "Amount by country" in found["chart"]._repr_html_()
    assert [row.offset for row in found["live"]] == list(range(30, 40))
    [letter] = found["letters"]
    assert (letter.message_id, letter.queue, letter.reason) == (
        "order-7",
        ["notebook.work"],
        ["rejected"],
    )
    assert found["replayed"] == ["order-7"]
    assert (served.count("notebook.work"), served.count("notebook.dead")) == (0, 0)


def test_notebook_has_no_outputs() -> None:
    code = [
        cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"
    ]
    assert code
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in code)
