"""`make bench-jobs`: compares jobs with other queues. tools/benchmark_jobs says what is measured.

It may be started as a file or as a module, so it puts the root of the project on the path.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from tools.benchmark_jobs.main import main

    raise SystemExit(main(sys.argv[1:]))
