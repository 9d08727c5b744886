"""Jobs over HTTP: a typed client, a worker, and the service (`leveret.jobs.service`).

`Client` and `AsyncClient` put in, take and settle jobs; a `Worker` calls functions with them. What
goes wrong is one of the exceptions of `leveret.jobs.faults`.

A name is imported when it is first used: a node imports the service, and no client. `__init__.pyi`
tells type checkers what is here.
"""

from importlib import import_module
from typing import Any, Final

_HOMES: Final = {
    "leveret.jobs.async_client": "AsyncClient",
    "leveret.jobs.client": "Client",
    "leveret.jobs.faults": "BadAnswer CallFailed InvalidCall NotAllowed NotAuthenticated OverRate "
    "ServiceDraining ServiceFailed StaleLease TimedOut UnknownJob Unreachable",
    "leveret.jobs.job": "Enqueued Failure Job JobInfo NewJob",
    "leveret.jobs.lane": "Dead Retry",
    "leveret.jobs.service.items": "Schedule TopicSettings TopicStats",
    "leveret.jobs.service.store": "Outcome",
    "leveret.jobs.worker": "Worker",
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names.split()}
__all__ = sorted(_HOME_OF)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*globals(), *_HOME_OF]
