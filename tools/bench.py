"""`make bench`, `bench-scale`, `bench-profile` and `bench-report`.

Without an argument it runs the scenarios. `scale` measures cost curves, `profile` shows where the
CPU time goes, and `report` draws the saved runs. The package tools/benchmark does the work. This
file can be started as a file or as a module, so it puts the root of the project on the path.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from tools.benchmark import history, profile, scaling
    from tools.benchmark.main import main

    words = sys.argv[1:]
    commands = {"scale": scaling.main, "report": history.main, "profile": profile.main}
    run = commands.get(words[0]) if words else None
    raise SystemExit(run(words[1:]) if run is not None else main(words))
