"""Actors of the chaos of a cluster go on after every end of a connection."""

import asyncio
from random import Random

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel

from tools.chaos_cluster.actors import Actor, AioActor


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


class Unlucky(Actor):
    """An actor whose connection ends in another way each time."""

    def __init__(self, *faults: Exception) -> None:
        super().__init__("unlucky", ["amqp://nowhere"], Random(1))
        self._faults = list(faults)

    def work(self, url: str) -> None:
        fault = self._faults.pop(0)
        if not self._faults:
            self.stopping.set()
        raise fault


def test_actor_goes_on_after_its_connection_has_ended() -> None:
    both = ExceptionGroup("cannot nack", [ConnectionError(), TimeoutError()])
    actor = Unlucky(ConnectionError(), both, TimeoutError())
    actor.run()
    assert actor.error is None


def test_fault_of_an_actor_itself_ends_it() -> None:
    actor = Unlucky(ExceptionGroup("two", [ConnectionError(), ZeroDivisionError()]), OSError())
    actor.run()
    assert isinstance(actor.error, ExceptionGroup)
    assert actor.error.subgroup(ConnectionError) is None
