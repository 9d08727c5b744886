"""The folders inside a table: `stream=NAME/date=DATE`, with escaped names, as Spark writes them."""

from pathlib import Path
from typing import Final
from urllib.parse import unquote

PARTITIONS: Final = ("stream", "date")


def partition_of(folder: Path) -> tuple[str, str]:
    """Return the stream and the date of a folder `…/stream=NAME/date=DATE`."""
    stream, date = (unquote(part.partition("=")[2]) for part in folder.parts[-2:])
    return stream, date
