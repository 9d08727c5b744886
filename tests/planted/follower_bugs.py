"""Bugs planted into the log of a follower."""

from typing import Final

from tests.planted.bugs import Bug

_RANDOM: Final = (
    "tests/simulation/test_follower_log.py::test_follower_keeps_what_it_has_synced_and_nothing_else"
)
_FAULTS: Final = "tests/simulation/test_follower_faults.py::"
_COPY: Final = "tests/simulation/test_directory_copy.py::"

FOLLOWER_BUGS: Final = (
    Bug(
        "cut too short",
        "storage/follower_log.py",
        "locate_block(file, first) or size",
        "locate_block(file, first + 1) or size",
        (_RANDOM,),
    ),
    Bug(
        "cut too long",
        "storage/follower_log.py",
        "locate_block(file, first) or size",
        "locate_block(file, first - 1) or size",
        (_RANDOM,),
    ),
    Bug(
        "write before the cut is synced",
        "storage/follower_log.py",
        "            file.truncate(end)\n            _sync(file)\n",
        "            file.truncate(end)\n",
        (_FAULTS + "test_cut_is_synced_before_anything_is_written_behind_it",),
    ),
    Bug(
        "mark of the last block stays when the log is cut",
        "storage/follower_log.py",
        "        lower_mark(self._disk, first - 1)\n",
        "",
        (_RANDOM,),
    ),
    Bug(
        "file removed before the commit",
        "storage/follower_log.py",
        "while self._effects and self._effects[0].index <= self.commit:",
        "while self._effects and self._effects[0].index <= self.commit + 1:",
        (_FAULTS + "test_nothing_is_removed_before_the_roll_block_is_committed",),
    ),
    Bug(
        "state not written before the answer",
        "storage/follower_log.py",
        "            write_raft_state(self._disk, job.state)\n",
        "",
        (_FAULTS + "test_state_is_on_disk_before_it_is_answered",),
    ),
    Bug(
        "state read before it is durable",
        "storage/raft_state.py",
        "    disk.sync_folder()\n",
        "",
        (_FAULTS + "test_state_that_a_start_has_read_is_not_forgotten_after_a_power_loss",),
    ),
    Bug(
        "segments not synced before older files go",
        "storage/follower_log.py",
        "        self._segments.sync()\n",
        "",
        (_RANDOM,),
    ),
    Bug(
        "damaged block written",
        "storage/follower_log.py",
        "            self._check(job)\n",
        "",
        (_FAULTS + "test_block_that_is_not_sound_is_never_written",),
    ),
    Bug(
        "term missing in the table",
        "storage/block_scan.py",
        "    scan.terms += [(int(term), int(first)) for term, first in walk.terms]\n",
        "",
        (_RANDOM,),
    ),
    Bug(
        "torn end taken for damage",
        "storage/block_scan.py",
        "has_later_block(rest[SYNC_BYTES_MAX:], 0, last)",
        "has_later_block(rest, 0, last)",
        (_FAULTS + "test_torn_end_that_was_never_synced_is_no_loss",),
    ),
    Bug(
        "damage taken for a torn end",
        "storage/block_scan.py",
        "if is_last and last >= witness and not",
        "if is_last and not",
        (_FAULTS + "test_damage_in_the_middle_is_a_loss_and_the_log_before_it_stays",),
    ),
    Bug(
        "missing end taken for the end",
        "storage/block_scan.py",
        "    if scan.last_index < witness and not scan.lost:\n",
        "    if False:\n",
        (_FAULTS + "test_missing_end_of_the_log_is_a_loss",),
    ),
    Bug(
        "half of an installed copy can start",
        "storage/directory_copy.py",
        "    _set_mark(disk, int(index))\n",
        "",
        (_COPY + "test_mixed_directory_is_refused_by_a_plain_start",),
    ),
    Bug(
        "copy without the blocks that have removed segments",
        "storage/directory_copy.py",
        "                self.files[0].size = roll.size()\n",
        "",
        (_COPY + "test_copy_of_a_directory_without_segments_that_its_roll_block_lists",),
    ),
)
