"""Import definitions from a file at the start of a node, before it listens."""

import codecs
import logging
from collections import deque
from pathlib import Path

import msgspec

from leveret.auth import UserDirectory
from leveret.definitions.definitions import Definitions
from leveret.definitions.importing import Importer
from leveret.definitions.parameters import OPERATOR
from leveret.errors import ConfigError, PreconditionFailedError

log = logging.getLogger(__name__)


def load_definitions(path: str, definitions: Definitions, directory: UserDirectory) -> None:
    """Import a file, inside a turn. Raises ConfigError, with nothing changed, if it has a fault."""
    try:
        found = msgspec.json.decode(Path(path).read_bytes().removeprefix(codecs.BOM_UTF8))
        importer = Importer(definitions, directory, found, owner=OPERATOR)
        importer.hash_passwords()
        deque(importer.check(), maxlen=0)
    except OSError as fault:
        raise ConfigError(f"load_definitions: {path}: {fault.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, PreconditionFailedError) as fault:
        raise ConfigError(f"load_definitions: {path}: {fault}") from None
    except RecursionError:
        raise ConfigError(f"load_definitions: {path}: it is nested too deep") from None
    deque(importer.steps(), maxlen=0)
    log.info("definitions of %s are in force", path)
