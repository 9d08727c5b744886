"""`leveret serve` with log files so small that they are filled, indexed and removed all the time.

    python -m tools.chaos.small_files serve --data …

The size of log files is not an option of a node, because only tests need another size.
"""

import sys
from typing import Final

from leveret.cli.main import main
from leveret.runtime import node

FILE_BYTES: Final = 512 * 1024


if __name__ == "__main__":
    vars(node)["FILE_BYTES"] = FILE_BYTES
    sys.exit(main())
