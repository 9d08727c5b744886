"""The memory limit of the node: from control groups, or from the machine."""

from pathlib import Path

import pytest

from leveret.config.settings import memory_high_bytes
from leveret.runtime.memory_alarm import DEFAULT_BYTES, machine_bytes

MIB = 1024 * 1024


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": f"MemTotal: {8 * 1024 * 1024} kB\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


GROUPS = {
    "version 2, in a container": {"sys/fs/cgroup/memory.max": f"{512 * MIB}\n"},
    "version 2, a group of a group": {
        "proc/self/cgroup": "0::/system.slice/leveret.service\n",
        "sys/fs/cgroup/system.slice/memory.max": "max\n",
        "sys/fs/cgroup/system.slice/leveret.service/memory.max": f"{512 * MIB}\n",
    },
    "version 2, the group around it is smaller": {
        "proc/self/cgroup": "0::/pod/container\n",
        "sys/fs/cgroup/pod/memory.max": f"{512 * MIB}\n",
        "sys/fs/cgroup/pod/container/memory.max": f"{1024 * MIB}\n",
    },
    "version 2, throttled": {
        "proc/self/cgroup": "0::/a\n",
        "sys/fs/cgroup/a/memory.high": f"{512 * MIB}\n",
        "sys/fs/cgroup/a/memory.max": f"{600 * MIB}\n",
    },
    "version 1, in a container": {
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{512 * MIB}\n",
    },
    "version 1, a group of its own": {
        "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n1:name=systemd:/x\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": f"{512 * MIB}\n",
    },
}


@pytest.mark.parametrize("name", GROUPS)
def test_the_limit_of_the_control_group_counts(tmp_path: Path, name: str) -> None:
    limit_bytes = machine_bytes(machine(tmp_path, GROUPS[name]))
    assert limit_bytes == 512 * MIB
    assert memory_high_bytes(0.5, limit_bytes) == 256 * MIB


def test_without_a_limit_the_machine_counts(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/memory.max": "max\n"}
    assert machine_bytes(machine(tmp_path, files)) == 8 * 1024 * MIB


def test_a_limit_above_the_machine_is_none(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/memory.max": f"{100 * 1024 * MIB}\n"}
    assert machine_bytes(machine(tmp_path, files)) == 8 * 1024 * MIB


def test_a_system_that_tells_nothing_has_a_default(tmp_path: Path) -> None:
    assert machine_bytes(tmp_path) == DEFAULT_BYTES
