"""The status of a shovel: its state, since when, and how many messages it moved."""

from typing import Final

from leveret.engine.turns.session import Session
from leveret.shovels.settings import ShovelSettings

STARTING: Final = "starting"
RUNNING: Final = "running"
TERMINATED: Final = "terminated"


class ShovelStatus:
    """The part of a shovel that the management API shows.

    It is a class of its own so that nodes without shovels need not import the code that runs one.
    """

    def __init__(
        self, name: str, vhost: str, settings: ShovelSettings, owner: str | None, now_ms: int
    ) -> None:
        self.name = name
        self.vhost = vhost
        self.settings = settings
        self.owner = owner  # see `Owner`
        self.state = STARTING
        self.reason: str | None = None  # why it is terminated
        self.since_ms = now_ms  # when the state began
        self.started_at_ms = now_ms
        self.moved = 0  # messages that the target has accepted since the start
        self.remaining: int | None = None  # messages until it ends by itself

    @property
    def session(self) -> Session | None:
        """The engine's session that holds the unsettled messages, if the source is this node."""
        return None

    def recheck(self) -> None:
        """Stop if the owner may no longer do what the shovel does."""
        raise NotImplementedError

    async def run(self) -> None:
        """Move messages until `remaining` is 0, or for ever."""
        raise NotImplementedError
