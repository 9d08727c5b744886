"""The recorded counts of instructions, and the comparison with them.

Counts are valid for one interpreter and one kind of machine; others are not compared. The compilers
are recorded, too: they may explain a change without a change of code.
"""

import json
import platform
import subprocess
import sysconfig
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_name("baseline.json")
GROWTH_MAX: Final = 0.15
# If a plain loop costs more or less than this factor, the interpreter is another one.
REFERENCE_DRIFT_MAX: Final = 0.02
_MUST_MATCH: Final = ("python", "machine")


@dataclass(frozen=True)
class Baseline:
    """Recorded counts, and where they were made."""

    environment: dict[str, str]
    instructions: dict[str, float]

    def why_not_here(self, here: dict[str, str]) -> str:
        """Return why counts made here could not be compared; empty if they could."""
        for name in _MUST_MATCH:
            if self.environment[name] != here[name]:
                return f"the baseline is for {name} {self.environment[name]}, this is {here[name]}"
        return ""

    def why_not_comparable(self, counted: dict[str, float]) -> str:
        """Return why these counts cannot be compared; empty if they can."""
        drift = counted["reference"] / self.instructions["reference"] - 1
        if abs(drift) > REFERENCE_DRIFT_MAX:
            return f"the interpreter itself needs {drift:+.0%} instructions: it was built otherwise"
        return ""

    def growth(self, counted: dict[str, float]) -> dict[str, float]:
        """Return how much more each path needs than before; new paths are left out."""
        return {
            name: count / self.instructions[name] - 1
            for name, count in counted.items()
            if name in self.instructions
        }

    def faults(self, counted: dict[str, float]) -> list[str]:
        """Return one line for each path that is over its limit, missing or not recorded."""
        faults = [
            f"{name}: {counted[name]:,.0f} instructions a message, {growth:+.1%} of the recorded "
            f"{self.instructions[name]:,.0f} (at most {GROWTH_MAX:+.0%})"
            for name, growth in self.growth(counted).items()
            if growth > GROWTH_MAX
        ]
        faults += [f"{name}: is not recorded" for name in counted.keys() - self.instructions.keys()]
        faults += [f"{name}: is gone" for name in self.instructions.keys() - counted.keys()]
        return faults


def load() -> Baseline:
    found = json.loads(FILE.read_text())
    return Baseline(found["environment"], found["instructions"])


def save(counted: dict[str, float]) -> None:
    """Record the counts of this environment."""
    rounded = {name: round(count, 1) for name, count in counted.items()}
    found = {"environment": environment(), "instructions": rounded}
    FILE.write_text(json.dumps(found, indent=1) + "\n")


def environment() -> dict[str, str]:
    """Return the properties that counts depend on."""
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "machine": platform.machine(),
        "compiler": _compiler(),
        "mypy": _version("mypy"),
        "librt": _version("librt"),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _compiler() -> str:
    name = (sysconfig.get_config_var("CC") or "cc").split()[0]
    try:
        done = subprocess.run([name, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return "none"
    return (done.stdout.splitlines() or ["none"])[0]
