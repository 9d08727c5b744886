"""How a shovel is: what is shown of it, whether it runs or waits."""

from typing import Final

from leveret.engine.turns.session import Session
from leveret.shovels.settings import ShovelSettings

STARTING: Final = "starting"
RUNNING: Final = "running"
TERMINATED: Final = "terminated"


class ShovelState:
    """What is known of a shovel."""

    def __init__(self, name: str, vhost: str, settings: ShovelSettings, now_ms: int) -> None:
        self.name = name
        self.vhost = vhost
        self.settings = settings
        self.state = STARTING
        self.reason: str | None = None  # why it does not run
        self.since_ms = now_ms  # of the state
        self.started_at_ms = now_ms
        self.carried = 0  # messages that the target has, since it was started
        self.remaining: int | None = None  # messages until it ends by itself

    @property
    def session(self) -> Session | None:
        """What holds the messages that are on their way, if they are of this node."""
        return None

    async def run(self) -> None:
        """Until it has carried enough; for ever, as a rule."""
        raise NotImplementedError
