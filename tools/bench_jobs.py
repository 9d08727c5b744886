"""`make bench-jobs`: jobs beside other queues. What is measured and how: tools/benchmark_jobs.

It may be started as a file or as a module; the root of the project is put on the path for that.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from tools.benchmark_jobs.main import main

    raise SystemExit(main(sys.argv[1:]))
