"""Bugs planted where a node puts its broker, its log and its member of the cluster together."""

from typing import Final

from tests.planted.bugs import Bug

_STORM: Final = "tests/simulated/cluster/test_storm.py::"
_CUT_OFF: Final = (_STORM + "test_leader_that_is_cut_off_tells_nothing_new",)
_FULL: Final = (_STORM + "test_leader_with_a_full_disk_counts_only_blocks_that_it_has_written",)
_SYNC: Final = (_STORM + "test_leader_whose_sync_fails_ends_and_confirms_nothing",)
_TIMES: Final = (
    _STORM + "test_times_in_the_log_never_fall_when_a_leader_with_a_late_clock_follows",
)
_ELECTED: Final = (_STORM + "test_elected_node_copies_its_directory_to_the_member_that_it_needs",)
_NEEDED: Final = (
    _STORM + "test_leader_copies_its_directory_to_the_member_that_its_next_commit_needs",
)
_GIVEN_UP: Final = (
    "tests/simulated/cluster/test_operation.py::"
    "test_a_leader_goes_on_after_a_hand_over_that_was_given_up",
)

CLUSTER_BUGS: Final = (
    Bug(
        "output leaves before its block is committed",
        "amqp/commit_gate.py",
        "            if block != 0:\n",
        "            if block < 0:\n",
        _CUT_OFF,
    ),
    Bug(
        "block of a leader counts as committed when its own disk has it",
        "storage/replicated_log.py",
        "        while written and written[0].number <= self._safe_block:\n",
        "        while written:\n",
        _CUT_OFF,
    ),
    Bug(
        "member counts a block that is not in its directory",
        "cluster/member.py",
        "        self._begin_member(stored)\n        raft, host = before.raft",
        "        stored.last_index = before.raft.log.last_index\n"
        "        stored.terms = before.raft.log.terms.rows()\n"
        "        self._begin_member(stored)\n        raft, host = before.raft",
        _FULL,
    ),
    Bug(
        "failed sync does not end the leader",
        "storage/store.py",
        "            if self.on_unwritable is not None:\n",
        "            if self.on_unwritable is None:\n",
        _SYNC,
    ),
    Bug(
        "first block of a term has the time of its node",
        "storage/follower_log.py",
        "        self.last_ms = max(self.last_ms, self.now_ms())\n",
        "        self.last_ms = self.now_ms()\n",
        _TIMES,
    ),
    Bug(
        "elected node serves no copy before it leads",
        "runtime/cluster_node.py",
        "            done(self._open_source(self._newest_settled()",
        "            done(None and self._open_source(self._newest_settled()",
        _ELECTED,
    ),
    Bug(
        "copy waits for a new file that only its target can commit",
        "runtime/cluster_node.py",
        "call_later(ROLL_WAIT_S, on_late)",
        "call_later(1e9, on_late)",
        _NEEDED,
    ),
    Bug(
        "log does not go on after a hand-over that was given up",
        "cluster/host.py",
        "            self._leader_log.resume()\n",
        "            pass\n",
        _GIVEN_UP,
    ),
)
