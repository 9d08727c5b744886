"""A service that gets SIGTERM or SIGINT finishes its handler and ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import leveret
from leveret.bus import Bus, Layout, QueueType, topic
from tests.bus.nodes import Node
from tests.bus.stage import FAST, Placed, depth, pytestmark_bus

pytestmark = pytestmark_bus
APP: Final = Path(__file__).parent / "apps" / "ending.py"
END_S: Final = 60.0


@pytest.mark.parametrize(
    ("way", "number", "code"),
    [
        ("run", signal.SIGTERM, 0),
        ("run", signal.SIGINT, 0),
        ("sync run", signal.SIGTERM, 0),
        ("sync run", signal.SIGINT, 0),
        ("sync with", signal.SIGTERM, 128 + signal.SIGTERM),
    ],
)
async def test_handler_is_finished_after(
    leveret_node: Node, prefix: str, tmp_path: Path, way: str, number: signal.Signals, code: int
) -> None:
    queue, file = f"{prefix}.events", tmp_path / "go"
    layout = topic.layout(queue, queue_type=QueueType.CLASSIC)
    environment = {**os.environ, "PYTHONPATH": str(Path(leveret.__file__).parents[1])}
    command = [sys.executable, str(APP), leveret_node.url, queue, way, str(file)]
    await declare(leveret_node.url, layout)
    async with Bus(leveret_node.url, layout, settings=FAST) as bus:
        await bus.publish(Placed(1))
    service = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    try:
        assert service.stdout is not None
        async with asyncio.timeout(END_S):
            assert await service.stdout.readline() == b"begun\n"
            service.send_signal(number)
            file.touch()
            out, err = await service.communicate()
    finally:
        if service.returncode is None:
            service.kill()
    assert (service.returncode, out, err) == (code, b"handled\n", b"")
    assert await depth(leveret_node.url, queue) == 0


async def declare(url: str, layout: Layout) -> None:
    """Declare the topology, as a service does that ran before."""
    bus = Bus(url, layout, settings=FAST)
    bus.on_message()(lambda delivery: None)
    async with bus:
        pass
