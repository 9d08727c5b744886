"""`make bench`: Leveret beside RabbitMQ in one run; tools/benchmark says what is measured and how.

It may be started as a file or as a module; the root of the project is put on the path for that.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from tools.benchmark.main import main

    raise SystemExit(main())
