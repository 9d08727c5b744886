"""Bugs planted into the storage, each of which its tests must find.

Each edit is short and stands for a likely mistake: a missing step, two steps in the wrong order, a
number that is off by one. A bug names the quickest tests that must find it. A test with parameters
finds it if it fails for one of them.
"""

from dataclasses import dataclass
from typing import Final

_FAULTS: Final = "tests/simulation/test_storage_faults.py::"
_FILES: Final = "tests/simulation/test_storage_files.py::"
_DAMAGE: Final = "tests/simulation/test_storage_damage.py::"
_RESTART: Final = "tests/simulation/test_storage_restart.py::"
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
        "elif block <= self.log.synced_block:",
        "elif block > self.log.synced_block:",
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
        "storage/log.py",
        "            file.sync()\n            job.sync_s",
        "            job.sync_s",
        (_FAULTS + "test_every_confirm_comes_after_a_sync_of_what_it_confirms",),
    ),
    Bug(
        "sync that failed is tried again",
        "storage/log.py",
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
        "storage/log.py",
        "if failed is not None and job is not failed:",
        "if failed is not None and job is None:",
        (_FAULTS + "test_node_that_stops_on_a_full_disk_leaves_no_gap_before_a_block",),
    ),
    Bug(
        "commit answered before the sync",
        "amqp/handlers/confirm.py",
        "    channel.commits_waiting += 1\n    channel.turn.unsynced.append(channel)",
        "    channel.reply(MethodWriter(TX_COMMIT_OK))",
        (_FAULTS + "test_commit_is_answered_after_the_sync",),
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
        "    if durable and not vhost.turn.is_restoring:\n        vhost.log(encode_queue(",
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
        "        file.sync()\n",
        "",
        (_FILES + "test_power_lost_in_every_moment_of_a_start",),
    ),
    Bug(
        "older checkpoint removed before the name of the new one is safe",
        "storage/checkpoint.py",
        "    disk.sync_folder()\n",
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
        "                    file.truncate(at)\n",
        "",
        (_RESTART + "test_torn_end_is_cut_off_once",),
    ),
    Bug(
        "damage in the middle taken for a torn end",
        "storage/recovery.py",
        "if may_end and not has_later_block(data, at, last):",
        "if may_end:",
        (_DAMAGE + "test_hole_in_the_middle_is_refused[zeros-1]",),
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
)
