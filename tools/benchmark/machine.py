"""Facts of a run: commit, versions and machine. Results cannot be compared without them."""

import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any, Final

from leveret import build_info
from tools import rabbitmq

ROOT: Final = Path(__file__).resolve().parents[2]


def facts() -> dict[str, Any]:
    """Return commit, versions and machine, with the load average before the run."""
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "commit": _git("rev-parse", "HEAD") or "none",
        "has_changes": bool(_git("status", "--porcelain")),
        "leveret": build_info.describe(),
        "rabbitmq": rabbitmq.version(),
        "machine": {
            "cpu": _cpu_model(),
            "cores": os.cpu_count(),
            "memory_gb": round(memory_bytes / 1e9, 1),
            "kernel": platform.release(),
            "python": platform.python_version(),
            "load_average_before": os.getloadavg(),
        },
    }


def finish(found: dict[str, Any]) -> None:
    """Add the load average after the run."""
    found["machine"]["load_average_after"] = os.getloadavg()


def is_busy() -> bool:
    return os.getloadavg()[0] > (os.cpu_count() or 1) / 2


def _git(*words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
