"""Bugs planted into the storage, each of which its tests must find.

Each edit is short and stands for a likely mistake: a missing step, two steps in the wrong order, a
number that is off by one. A bug names the quickest tests that must find it. A test with parameters
finds it if it fails for one of them.
"""

from dataclasses import dataclass
from typing import Final

_FAULTS: Final = "tests/simulation/test_storage_faults.py::"
_DEFINITIONS: Final = "tests/simulation/test_storage_definitions.py::"
_FILES: Final = "tests/simulation/test_storage_files.py::"
_DAMAGE: Final = "tests/simulation/test_storage_damage.py::"
_LOG_END: Final = "tests/simulation/test_storage_log_end.py::"
_RESTART: Final = "tests/simulation/test_storage_restart.py::"
_LEADER: Final = "tests/simulation/test_replicated_start.py::"
_COMMIT: Final = "tests/simulation/test_storage_commit.py::"
_VHOSTS: Final = "tests/simulation/test_storage_vhosts.py::"


@dataclass(frozen=True)
class Bug:
    """One edit of one file, and the tests that must find it."""

    name: str
    file: str  # below src/leveret
    text: str  # occurs exactly once in the file
    instead: str
    catchers: tuple[str, ...]


BUGS: Final = (
    # What is told to publishers
    Bug(
        "confirm before the sync",
        "storage/store.py",
        "elif block <= self.log.committed_block:",
        "elif block > self.log.committed_block:",
        (_FAULTS + "test_no_confirm_leaves_while_the_block_is_on_its_way",),
    ),
    Bug(
        "confirm with the block before",
        "storage/store.py",
        "while waiting and waiting[0][0] <= block:",
        "while waiting and waiting[0][0] <= block + 1:",
        (_FAULTS + "test_no_confirm_leaves_while_the_block_is_on_its_way",),
    ),
    Bug(
        "sync left out",
        "storage/job_writer.py",
        "            file.sync()\n            job.sync_s",
        "            job.sync_s",
        (_FAULTS + "test_every_confirm_comes_after_a_sync_of_what_it_confirms",),
    ),
    Bug(
        "sync that failed is tried again",
        "storage/job_writer.py",
        "            file.sync()\n            job.sync_s",
        "            try:\n"
        "                file.sync()\n"
        "            except OSError:\n"
        "                file.sync()\n"
        "            job.sync_s",
        (_FAULTS + "test_after_a_failed_sync_nothing_is_confirmed_any_more[1]",),
    ),
    Bug(
        "full disk confirmed",
        "storage/store.py",
        "            session.on_unsafe(seq)",
        "            session.on_synced(seq)",
        (_FAULTS + "test_full_disk_refuses_publishes_and_goes_on_when_there_is_space[1-room]",),
    ),
    Bug(
        "block after one that was not written is written",
        "storage/job_writer.py",
        "                self._fail(job, fault)\n",
        "                undone.popleft()\n                self._fail(job, fault)\n",
        (_FAULTS + "test_node_that_stops_on_a_full_disk_leaves_no_gap_before_a_block",),
    ),
    Bug(
        "commit answered before the sync",
        "amqp/handlers/confirm.py",
        "    if publishes or settles:\n        channel.connection.hold_output()\n",
        "",
        (_FAULTS + "test_commit_is_answered_after_the_sync",),
    ),
    Bug(
        "definition answered before the sync",
        "amqp/connection_base.py",
        "journal.definitions > journal.synced_definitions",
        "journal.definitions < journal.synced_definitions",
        (_DEFINITIONS + "test_every_answered_definition_survives",),
    ),
    Bug(
        "later answers overtake a held answer",
        "amqp/connection_base.py",
        "        holds[-1].pieces.extend(pieces)\n        free: list[bytes | memoryview] = []",
        "        free = pieces",
        (_DEFINITIONS + "test_later_answers_and_confirms_do_not_overtake_a_held_answer",),
    ),
    # What is written
    Bug(
        "message written without its queue",
        "engine/backlog/ledger.py",
        "self._write(message, self.id, due_ms)",
        "self._write(message, SPILLED, due_ms)",
        (_RESTART + "test_acked_message_is_gone_and_its_neighbours_are_not",),
    ),
    Bug(
        "ack not written",
        "engine/backlog/ledger.py",
        "            journal.write_gone(self.id, self._runs)\n",
        "",
        (
            _FAULTS + "test_acks_alone_start_no_sync_and_follow_soon",
            _RESTART + "test_acked_message_is_gone_and_its_neighbours_are_not",
        ),
    ),
    Bug(
        "ack that takes the next message along",
        "engine/backlog/ledger.py",
        "            runs.append(seq)\n            runs.append(seq)",
        "            runs.append(seq)\n            runs.append(seq + 1)",
        (_RESTART + "test_acked_message_is_gone_and_its_neighbours_are_not",),
    ),
    Bug(
        "delivery not written",
        "engine/backlog/ledger.py",
        "            journal.write_mark(self.id, self.delivered_seq)",
        "            pass",
        (_RESTART + "test_message_that_was_delivered_says_so_and_one_that_was_not_does_not",),
    ),
    Bug(
        "copy that refers to the wrong message",
        "journal/journal.py",
        "write_i32_be(writer, i32(at - self._last_at))",
        "write_i32_be(writer, i32(at - self._last_at + 1))",
        (_RESTART + "test_copies_of_one_message_are_whole_in_every_queue",),
    ),
    Bug(
        "index with offsets of the block instead of the file",
        "journal/journal.py",
        "queue, self.start + at, seq, priority, len(body), due_ms)",
        "queue, at, seq, priority, len(body), due_ms)",
        (_RESTART + "test_positions_of_full_files_lead_to_their_messages",),
    ),
    Bug(
        "transient message written as one to keep",
        "engine/backlog/ledger.py",
        "self._write(message, SPILLED, 0)",
        "self._write(message, self.id, 0)",
        (_RESTART + "test_transient_message_does_not_come_back",),
    ),
    Bug(
        "persistence of the message not asked for",
        "engine/queues/queue.py",
        "if self.durable and (message.flags & PERSISTENT or self.is_quorum):",
        "if self.durable:",
        (_FAULTS + "test_transient_messages_are_confirmed_at_once_and_not_written",),
    ),
    Bug(
        "durability of the queue not asked for",
        "engine/vhosts/queue_creation.py",
        "    if queue.durable and not vhost.turn.is_restoring:\n        vhost.log(encode_queue(",
        "    if not vhost.turn.is_restoring:\n        vhost.log(encode_queue(",
        (_RESTART + "test_what_is_not_durable_does_not_come_back",),
    ),
    # Checkpoints and files
    Bug(
        "checkpoint without what is gone",
        "engine/checkpoint.py",
        "    journal.write_gone(queue.ledger.id, runs)\n",
        "",
        (_RESTART + "test_acked_message_is_gone_and_its_neighbours_are_not",),
    ),
    Bug(
        "checkpoint without queues",
        "engine/checkpoint.py",
        "            journal.write_definition(encode_queue(queue))",
        "            pass",
        (_RESTART + "test_acked_message_is_gone_and_its_neighbours_are_not",),
    ),
    Bug(
        "checkpoint without counts",
        "engine/checkpoint.py",
        "in queue.ledger.returned.items():",
        "in list(queue.ledger.returned.items())[:0]:",
        (_RESTART + "test_retry_keeps_its_time_and_its_counts",),
    ),
    Bug(
        "checkpoint that forgets the numbers of deleted queues",
        "engine/checkpoint.py",
        "    journal.write_definition(encode_last_id(broker.slots.last_id))\n",
        "",
        (_FILES + "test_number_of_a_deleted_queue_is_not_used_again",),
    ),
    Bug(
        "checkpoint named before it is synced",
        "storage/checkpoint.py",
        "        self._file.sync()\n",
        "",
        (_FILES + "test_power_lost_in_every_moment_of_a_start",),
    ),
    Bug(
        "older checkpoint removed before the name of the new one is safe",
        "storage/checkpoint.py",
        "        self._disk.sync_folder()\n",
        "",
        (_FILES + "test_power_lost_in_every_moment_of_a_new_file",),
    ),
    Bug(
        "file removed before the acks that emptied it are synced",
        "storage/log.py",
        "        job.removable = self._empty_files()\n",
        "        job.removable_now = self._empty_files()\n",
        (_RESTART + "test_file_goes_after_the_acks_that_emptied_it_are_on_disk",),
    ),
    Bug(
        "dead letter whose original goes before it is synced",
        "engine/backlog/ledger.py",
        "            journal.release_later(message.position)",
        "            journal.release(message.position)",
        (_FILES + "test_dead_letter_outlives_a_full_disk_and_a_crash",),
    ),
    # What a start believes
    Bug(
        "checksum not looked at by a start",
        "storage/blocks.py",
        "return end if crc32(memoryview(data)[at + 8 : end]) == crc else 0",
        "return end",
        (_DAMAGE + "test_bit_turned_in_the_last_block_costs_that_block_alone",),
    ),
    Bug(
        "checksum not looked at by a read",
        "storage/log_reader.py",
        'if len(data) != size + 8 or crc32(data) != int.from_bytes(head[4:8], "big"):',
        "if len(data) != size + 8:",
        (_DAMAGE + "test_bit_turned_in_an_older_file_is_never_delivered[.log]",),
    ),
    Bug(
        "number of a block not looked at",
        "storage/blocks.py",
        'if int.from_bytes(data[at + 8 : at + 16], "big") != number:',
        'if int.from_bytes(data[at + 8 : at + 16], "big") < 0:',
        (_DAMAGE + "test_tail_that_is_no_block_is_cut_and_reported[5000-old blocks]",),
    ),
    Bug(
        "torn end not cut off",
        "storage/recovery.py",
        "        file.truncate(at)\n",
        "        file.size()\n",
        (_RESTART + "test_torn_end_is_cut_off_once",),
    ),
    Bug(
        "damage in the middle taken for a torn end",
        "storage/recovery_files.py",
        "return last >= found.synced_block and not has_later_block(data, at, last)",
        "return last >= found.synced_block",
        (_DAMAGE + "test_hole_in_the_middle_is_refused[zeros-1]",),
    ),
    Bug(
        "missing end of the log passed over",
        "storage/recovery.py",
        "    if found.synced_block <= found.last_block:\n",
        "    if found.last_block >= 0:\n",
        (_LOG_END + "test_log_cut_between_two_blocks_is_refused_and_nothing_is_changed[killed]",),
    ),
    Bug(
        "synced block that was damaged taken for a torn end",
        "storage/recovery_files.py",
        "return last >= found.synced_block and not has_later_block(data, at, last)",
        "return not has_later_block(data, at, last)",
        (_LOG_END + "test_flipped_bit_in_the_last_block_is_damage_and_not_a_torn_write",),
    ),
    Bug(
        "mark written before the sync",
        "storage/job_writer.py",
        "            began_s = time.perf_counter()\n",
        "            began_s = time.perf_counter()\n            self._mark.note(job.number)\n",
        (_LOG_END + "test_mark_never_names_a_block_that_a_power_loss_can_take",),
    ),
    Bug(
        "segment that the log does not explain removed",
        "storage/recovery.py",
        "unexamined = {} if adopts else require_explained(disk, broker, replay)\n",
        "unexamined: dict[int, Exception] = {}\n",
        (_LOG_END + "test_cut_log_of_an_older_version_is_refused_because_of_its_streams",),
    ),
    Bug(
        "counts of what came back lost",
        "storage/replay.py",
        "queue.returned[seq] = (returns, failures, ",
        "queue.returned[seq] = (0, 0, ",
        (_FILES + "test_redelivered_counts_of_a_message_that_waits_are_there_after_a_start",),
    ),
    Bug(
        "times of what is delayed lost",
        "storage/replay.py",
        "            write_i64_be(self._dues, due_ms)\n",
        "            write_i64_be(self._dues, 0)\n",
        (_RESTART + "test_delayed_message_keeps_its_time",),
    ),
    Bug(
        "priorities lost",
        "storage/queue_recovery.py",
        "priority = priorities[index] if queue.ready.prioritised else 0",
        "priority = 0",
        (_RESTART + "test_priorities_are_kept",),
    ),
    # What operators define
    Bug(
        "deleted vhost not told to the log",
        "engine/vhosts/vhost_deletion.py",
        "        journal.write_definition(encode_vhost_deletion(self._vhost.name))\n",
        "",
        (_VHOSTS + "test_after_a_crash_each_vhost_is_whole_or_not_there",),
    ),
    Bug(
        "queue of a deleted vhost told to the log later",
        "engine/vhosts/vhost_deletion.py",
        "            if queue.durable:\n"
        "                journal.write_definition(encode_queue_deletion(queue))\n",
        "            pass\n",
        (_VHOSTS + "test_streams_of_a_deleted_vhost_leave_no_file",),
    ),
    Bug(
        "policies after the messages",
        "storage/recovery.py",
        "    if broker.on_defined is not None:\n        broker.on_defined()\n",
        "",
        (_VHOSTS + "test_policies_are_in_force_before_the_first_message_after_a_start",),
    ),
    # A leader acts before other nodes have the block
    Bug(
        "block settled when it is on this disk",
        "storage/replicated_log.py",
        "        while written and written[0].number <= self._safe_block:\n",
        "        while written:\n",
        (
            _COMMIT + "test_confirm_waits_for_the_commit_and_later_blocks_are_written_meanwhile",
            _COMMIT + "test_new_file_is_settled_after_the_commit_of_its_first_block",
            _COMMIT + "test_file_is_removed_after_the_commit_of_the_acks",
        ),
    ),
    Bug(
        "effects of a block done when it is written",
        "storage/replicated_log.py",
        "        self._jobs.is_alone = False\n",
        "        self._jobs.is_alone = True\n",
        (_COMMIT + "test_confirm_waits_for_the_commit_and_later_blocks_are_written_meanwhile",),
    ),
    Bug(
        "file removed before the acks that emptied it are committed",
        "storage/job_writer.py",
        "        if job.is_committed or self.is_alone:\n",
        "        if not job.is_committed and job.is_written:\n"
        "            remove_logs(self._disk, job.removable, job.number)\n"
        "        if job.is_committed or self.is_alone:\n",
        (_COMMIT + "test_file_is_removed_after_the_commit_of_the_acks",),
    ),
    Bug(
        "file removed although the block that emptied it is on its way",
        "storage/replicated_log.py",
        "        if self.committed_block != self.taken_block:\n",
        "        if self.committed_block > self.taken_block:\n",
        (_COMMIT + "test_file_that_was_emptied_by_a_block_on_its_way_stays",),
    ),
    Bug(
        "full disk removes files whose acks are not committed",
        "storage/replicated_log.py",
        "        self._retry_timer = None\n        self._submit(job)\n",
        "        super()._retry(job)\n",
        (_COMMIT + "test_full_disk_removes_no_file_whose_acks_are_not_committed",),
    ),
    Bug(
        "files that a checkpoint replaces removed before its commit",
        "storage/job_writer.py",
        "            self._mark.note(job.number)\n",
        "            self._mark.note(job.number)\n"
        "            if job.new_file:\n"
        "                settle_roll(self._disk, job.new_file, job.files)\n",
        (_COMMIT + "test_new_file_is_settled_after_the_commit_of_its_first_block",),
    ),
    Bug(
        "chunk in its segment before the commit",
        "storage/job_writer.py",
        "            job.is_written = True\n",
        "            job.is_written = True\n            self._segments.append(job.chunks)\n",
        (_COMMIT + "test_stream_shows_a_message_after_its_commit",),
    ),
    Bug(
        "new file begun without a ROLL block",
        "storage/replicated_log.py",
        "            self._roll_file(self._number + 1, self._journal.take_index(), [])\n",
        "            self._journal.take_index()\n",
        (_COMMIT + "test_new_file_is_settled_after_the_commit_of_its_first_block",),
    ),
    Bug(
        "ROLL block at the end of the full file",
        "storage/replicated_log.py",
        "        job = WriteJob(pieces, self.taken_block + 1, HEAD_BYTES, number)\n",
        "        job = WriteJob(pieces, self.taken_block + 1, HEAD_BYTES + 16, number)\n",
        (_COMMIT + "test_log_files_hold_the_bytes_that_other_nodes_were_given",),
    ),
    Bug(
        "start at a ROLL block that is not settled",
        "storage/recovery_start.py",
        "        if roll and (number in settled or is_first):\n",
        "        if roll:\n",
        (_LEADER + "test_start_goes_back_to_the_last_settled_file",),
    ),
    Bug(
        "output of other clients before the commit",
        "amqp/commit_gate.py",
        "            if block != 0:\n",
        "            if block < 0:\n",
        (_COMMIT + "test_no_answer_tells_of_a_message_that_is_not_committed",),
    ),
    Bug(
        "message without a confirm not counted as told",
        "journal/journal.py",
        "        if self._last_body is not None or ",
        "        if ",
        (_COMMIT + "test_no_answer_tells_of_a_message_that_is_not_committed",),
    ),
    Bug(
        "leader that ends writes the rest of the journal",
        "storage/replicated_log.py",
        "        self.abandon()\n",
        "        super().stop()\n",
        (_COMMIT + "test_leader_that_ends_writes_what_it_gave_away_and_no_more",),
    ),
    Bug(
        "blocks that wait for a full disk forgotten at the end",
        "storage/replicated_log.py",
        "            self._jobs.write_rest()\n",
        "            pass\n",
        (_COMMIT + "test_leader_that_ends_on_a_disk_that_was_full_writes_what_it_gave_away",),
    ),
)
