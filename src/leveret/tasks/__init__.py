"""Long work on the messages of a queue: move, copy, delete and redrive.

- `TaskRequest`   the work that a user asks for, and on which messages
- `Task`          a request that is carried out, and its progress
- `Tasks`         carries requests out, in turns of bounded size, and keeps their records
"""

from leveret.tasks.runner import TaskLimitError, Tasks
from leveret.tasks.task import DryRun, Task, TaskEndpoint, TaskRequest

__all__ = ["TaskRequest", "TaskEndpoint", "Task", "TaskLimitError", "Tasks", "DryRun"]
