"""Who sees to it that queues and exchanges obey the policies of their vhost.

The vhost tells its governor of everything that is made in it;
`leveret.engine.vhosts.policy_enforcer` does the rest.
"""

from leveret.engine.target import Target
from leveret.engine.timer_queue import Timed


class Governor(Timed):
    """Applies policies to what it is shown."""

    def apply(self, target: Target) -> None:
        """Let a queue or exchange obey what is said of it now."""
        raise NotImplementedError
