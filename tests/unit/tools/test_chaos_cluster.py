"""Actors of the chaos of a cluster go on after every end of a connection."""

import asyncio
from random import Random

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel

from tools.chaos_cluster.actors import AioActor


class _Actor(AioActor):
    async def use(self, channel: AbstractChannel) -> None:
        raise NotImplementedError


def test_an_actor_goes_on_after_a_cancelled_call(monkeypatch: pytest.MonkeyPatch) -> None:
    actor = _Actor("actor", ["amqp://localhost"], Random(1))
    calls = 0

    async def connect(url: str, **options: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            actor.stopping.set()
        raise asyncio.CancelledError

    monkeypatch.setattr(aio_pika, "connect", connect)
    actor.run()
    assert (calls, actor.error) == (3, None)
