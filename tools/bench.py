"""`make bench`, `bench-scale`, `bench-profile` and `bench-report`.

Without a word it runs the scenarios; with `scale` it measures the curves, with `profile` it shows
where the time goes, with `report` it draws what was saved. What is measured and how is said in
tools/benchmark. It may be started as a file or as a module; the root of the project is put on the
path for that.
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
