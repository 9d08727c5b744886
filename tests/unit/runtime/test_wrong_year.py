"""A machine whose clock is decades ahead, such as by an empty battery, starts no node."""

from datetime import UTC, datetime

import pytest

from leveret.clock import Clock
from leveret.config.settings import Settings
from leveret.runtime import serve


def test_a_clock_that_is_decades_ahead_refuses_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wall_ns = int(datetime(2096, 2, 1, tzinfo=UTC).timestamp()) * 10**9
    monkeypatch.setattr(serve, "Clock", lambda: Clock(lambda: wall_ns, lambda: 0))
    assert serve.serve(Settings()) == 1
    assert "the clock of this machine shows the year 2096: set it" in capsys.readouterr().err
