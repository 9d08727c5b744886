"""`leveret serve` with log files so small that they are filled, indexed and removed all the time.

    python -m tools.chaos.small_files serve --data …

The size of log files is not an option of a node, because only tests need another size.
"""

import sys
from typing import Any, Final

from leveret.cli.main import main
from leveret.runtime import node
from leveret.storage.recovery import Recovery
from leveret.storage.recovery_result import RecoveryResult
from leveret.storage.store import Store

FILE_BYTES: Final = 512 * 1024


class SmallFilesStore:
    """A store whose log files are small. The store is compiled: it cannot be inherited from."""

    def __init__(self, *arguments: Any) -> None:
        self._store = Store(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def open(self, *arguments: Any, **options: Any) -> RecoveryResult:
        return self._store.open(*arguments, file_bytes=FILE_BYTES, **options)

    def prepare(self, *arguments: Any, **options: Any) -> Recovery:
        return self._store.prepare(*arguments, file_bytes=FILE_BYTES, **options)


if __name__ == "__main__":
    vars(node)["Store"] = SmallFilesStore
    sys.exit(main())
