"""Pauses between tries."""

import pytest

from pyspark_leveret import client


def test_a_fault_that_repeats_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(client, "PAUSE_S", (0.0, 0.0))
    patience = client.Patience(3600)
    for text in ("refused", "refused", "reset", "reset"):
        patience.pause(OSError(text))
    assert [each.getMessage() for each in caplog.records] == [
        "refused; trying again",
        "reset; trying again",
    ]
