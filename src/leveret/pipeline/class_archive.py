"""Let the JVM of a local Spark start fast, with an archive of its classes.

Before its first answer a JVM reads, checks and links some thousands of classes of Spark. With an
archive ("class data sharing") it maps them from a file. One JVM writes the archive when it exits,
and later ones use it. It is in the user's cache, in the home of `spark_home`.

To write an archive costs more CPU time than one start saves. So the first start only notes that
Spark is used here: a container that begins with an empty cache each time never writes one. A later
start writes it, and no other one within `WRITE_S`.

A JVM ignores an archive that is incomplete, or that was made by another Java or of other jars. The
name of the archive has both in it, so an upgrade makes a new one. A JVM that writes an archive
first removes the old file; JVMs that use it keep it open.
"""

import hashlib
import os
from pathlib import Path
from typing import Final

from leveret.clock import Clock

WRITE_S: Final = 600.0  # from a first start, or a start that writes the archive, to the next one
# Variables that put folders with files on the class path. No archive can be made of these.
_CLASS_PATHS: Final = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")
_SILENT: Final = "-Xlog:disable -Xlog:all=error:stderr"  # no warnings about single classes


def archive_options(home: Path, java: Path) -> str:
    """Return options for a JVM of Spark: use the archive, or write it on exit. Empty: neither."""
    if any(os.environ.get(name) for name in _CLASS_PATHS) or (home / "conf").exists():
        return ""
    try:
        archive = home / _archive_name(home, java)
        if archive.exists():
            return f"-XX:SharedArchiveFile={archive} {_SILENT}"
        if not _may_write(archive.with_suffix(".noted")):
            return ""
        for old in home.glob(f"{_prefix(java)}*"):
            if old.stem != archive.stem:
                old.unlink(missing_ok=True)
    except OSError:
        return ""
    return f"-XX:ArchiveClassesAtExit={archive} {_SILENT}"


def _may_write(note: Path) -> bool:
    """Return True if the last note of a start is old. Note this start if it is the first."""
    is_first = not note.exists()
    if not is_first and Clock().now_ms() / 1000 - note.stat().st_mtime < WRITE_S:
        return False
    note.touch()
    return not is_first


def _archive_name(home: Path, java: Path) -> str:
    """Return a name that changes with the version of Java and with the jars of Spark."""
    release = (java / "release").read_bytes()
    jars = "\n".join(sorted(path.name for path in (home / "jars").iterdir()))
    return f"{_prefix(java)}{_digest(release + jars.encode())}.jsa"


def _prefix(java: Path) -> str:
    return f"classes-{_digest(str(java).encode())}-"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
