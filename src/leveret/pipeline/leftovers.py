"""Remove files of a table of Parquet files that no manifest names: killed batches leave them.

A running batch has files of this kind too. They are removed only while the lock of the archive is
held, so that no archive of this machine can be writing them. The next archive of a Delta table
deletes the files of its killed batch (`leveret.lake.delta.recover_staging`). Does not import Spark.
"""

from pathlib import Path

from leveret.clock import Clock
from leveret.errors import ResourceLockedError
from leveret.lake.delta import is_delta
from leveret.lake.layout import BRONZE, Lake, read_manifest, read_merged
from leveret.pipeline.locks import exclusive_lock


def archive_lock(lake: Lake, table: str) -> Path:
    """Return the lock file that `archive` holds while it runs."""
    return lake.checkpoint(table) / "archive.lock"


def find_leftovers(lake: Lake, table: str) -> list[Path]:
    """Return the files that neither the manifest nor the list of merged files names.

    None for a Delta table, whose next archive deletes them.
    """
    folder = lake.require(BRONZE, table)
    if is_delta(folder):
        return []
    found = [path for path in folder.glob("*/*/*.parquet") if path.parent.parent.name != "_merged"]
    merged = read_merged(folder)  # after the listing: a file that is listed later is kept
    named = {*read_manifest(folder).files, *merged.files, *merged.replaced, *merged.removed}
    return [path for path in found if str(path.relative_to(folder)) not in named]


def remove_leftovers(lake: Lake, table: str, keep_s: float) -> int:
    """Delete empty leftovers, and others after `keep_s`; return their number.

    While an archive runs, nothing is deleted.
    """
    try:
        with exclusive_lock(archive_lock(lake, table), "an archive runs"):
            return sum(_remove(path, keep_s) for path in find_leftovers(lake, table))
    except ResourceLockedError:
        return 0


def _remove(path: Path, keep_s: float) -> bool:
    facts = path.stat()
    age_s = Clock().now_ms() / 1000 - facts.st_mtime
    if facts.st_size and age_s < keep_s:
        return False  # a reader that listed the folder may be reading it
    path.unlink(missing_ok=True)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return True
