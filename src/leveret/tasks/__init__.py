"""Long work on messages: move, copy, delete and redrive.

- `TaskRequest`    what somebody wants done
- `Task`     an order that is carried out, and how far it is
- `Tasks`    carries orders out, in turns, and remembers them
"""

from leveret.tasks.runner import Tasks
from leveret.tasks.task import DryRun, Task, TaskEndpoint, TaskRequest

__all__ = ["TaskRequest", "TaskEndpoint", "Task", "Tasks", "DryRun"]
