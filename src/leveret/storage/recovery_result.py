"""The result of a recovery: what a data directory holds, and what is lost."""

from leveret.storage.damage import Damage
from leveret.storage.replay import Replay


class RecoveryResult:
    """The result of one recovery, which fills it in step by step."""

    def __init__(self) -> None:
        self.files: dict[int, int] = {}  # sizes of the log files, including missing ones
        self.covered = 0  # files before this number are older than the checkpoint
        self.next_file = 1
        self.last_block = 0
        self.messages = 0
        self.synced_block = 0  # a block that was on disk, as far as the directory tells
        self.unsynced_from = 0  # where later blocks begin in the newest file; 0: there are none
        self.marked_block = 0  # the block that the mark `synced` names
        self.is_mark_damaged = False  # the mark `synced` cannot be read
        self.cut_bytes = 0  # bytes of a torn write at the end of the log
        self.torn: tuple[int, int] | None = None  # file of the torn write, and where it begins
        self.indexes: dict[int, bytes] = {}  # indexes of files that were read, to be written
        self.is_replicated = False  # the node leads a cluster
        self.newest_index = b""  # the index of the newest file, which is not written yet
        self.live: dict[int, int] = {}  # number of live messages, by log file
        self.totals: dict[int, int] = {}  # number of live and settled messages, by log file
        self.superseded: dict[int, set[int]] = {}  # offsets of messages with a later copy, by file
        self.damage: list[Damage] = []  # invalid ranges in the middle of the log
        self.is_repair = False  # accept any damage and missing files
        # Report a missing end of the log instead of refusing it: nothing was ever synced.
        self.accepts_lost_end = False
        self.has_lost_delivery_marks = False  # then each message may have been delivered
        # The definitions are the readable part of a damaged checkpoint.
        self.has_lost_checkpoint = False
        self.replay = Replay()
        self.missing: set[int] = set()  # log files that should exist
        self.losses: list[str] = []  # error texts about missing files and lost blocks
        # Queues whose messages could not be restored and are set aside: error texts by number.
        self.unrestored: dict[int, str] = {}
        self.faults: list[str] = []  # error texts about definitions that could not be restored
