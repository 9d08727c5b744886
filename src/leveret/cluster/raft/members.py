"""The members of a cluster, as values and as bytes.

    members = next_number:u32 voters non_voters                each list: count:u32 member*
    member  = number:u32 size:u32 name size:u32 uid size:u32 address

A member has a small number that is never given to another member, a name for people, the uid of its
data directory, and an address, which only its host can read. `next_number` is the number of the
next new member. It is higher than the number of every earlier member. `Members` never changes: a
change makes a new value.
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from leveret.cluster.raft.fields import Reader, write_bytes, write_u32
from leveret.errors import FieldSyntaxError

NOBODY: Final = 0  # no member has this number

NUMBER_MAX: Final = 65_535
MEMBERS_MAX: Final = 64
NAME_BYTES_MAX: Final = 255
UID_BYTES_MAX: Final = 64
ADDRESS_BYTES_MAX: Final = 1024
_MEMBER_BYTES_MIN: Final = 16


class Member:
    """One node of the cluster."""

    def __init__(self, number: i64, name: str = "", uid: bytes = b"", address: bytes = b"") -> None:
        assert NOBODY < number <= NUMBER_MAX
        self.number: i64 = number
        self.name = name
        self.uid = uid
        self.address = address


class Members:
    """Voters and non-voters. Non-voters receive the log but do not vote. No node is both."""

    def __init__(
        self, voters: list[Member], non_voters: list[Member], next_number: i64 = 0
    ) -> None:
        self.members: dict[int, Member] = {}
        for member in voters + non_voters:
            assert int(member.number) not in self.members, "a member that is named twice"
            self.members[int(member.number)] = member
            next_number = max(next_number, member.number + 1)
        self.next_number: i64 = max(next_number, NOBODY + 1)
        self.voters: list[int] = [int(member.number) for member in voters]
        self.non_voters: list[int] = [int(member.number) for member in non_voters]

    def quorum(self) -> i64:
        """Return the number of voters in a majority."""
        return len(self.voters) // 2 + 1

    def has(self, node: i64) -> bool:
        return int(node) in self.members

    def is_voter(self, node: i64) -> bool:
        return int(node) in self.voters

    def named(self, name: str) -> Member | None:
        """Return the member of a name."""
        for member in self.members.values():
            if member.name == name:
                return member
        return None

    def everyone(self) -> list[int]:
        return self.voters + self.non_voters

    def is_one_step_from(self, other: "Members") -> bool:
        """Return True if at most one voter differs, so that majorities of both share a voter."""
        return len(set(self.voters) ^ set(other.voters)) <= 1

    def with_non_voter(self, member: Member) -> "Members":
        non_voters = [*self._of(self.non_voters), member]
        return Members(self._of(self.voters), non_voters, self.next_number)

    def with_voter(self, node: i64) -> "Members":
        """Return these members with a non-voter promoted."""
        promoted = self.members[int(node)]
        others = [number for number in self.non_voters if number != node]
        return Members([*self._of(self.voters), promoted], self._of(others), self.next_number)

    def without(self, node: i64) -> "Members":
        voters = [number for number in self.voters if number != node]
        non_voters = [number for number in self.non_voters if number != node]
        return Members(self._of(voters), self._of(non_voters), self.next_number)

    def _of(self, numbers: list[int]) -> list[Member]:
        return [self.members[number] for number in numbers]


def write_members(writer: BytesWriter, members: Members) -> None:
    write_u32(writer, members.next_number)
    _write_list(writer, members, members.voters)
    _write_list(writer, members, members.non_voters)


def _write_list(writer: BytesWriter, members: Members, numbers: list[int]) -> None:
    write_u32(writer, len(numbers))
    for number in numbers:
        member = members.members[number]
        write_u32(writer, member.number)
        write_bytes(writer, member.name.encode())
        write_bytes(writer, member.uid)
        write_bytes(writer, member.address)


def read_members(reader: Reader) -> Members:
    next_number = reader.u32()
    voters = _read_list(reader)
    non_voters = _read_list(reader)
    numbers = [int(member.number) for member in voters + non_voters]
    if len(numbers) > MEMBERS_MAX:
        raise FieldSyntaxError(f"{len(numbers)} members, more than {MEMBERS_MAX}")
    if len(set(numbers)) != len(numbers):
        raise FieldSyntaxError("a member that is named twice")
    if next_number > NUMBER_MAX + 1 or any(number >= next_number for number in numbers):
        raise FieldSyntaxError(f"{next_number} as the next number")
    return Members(voters, non_voters, next_number)


def _read_list(reader: Reader) -> list[Member]:
    return [_read_member(reader) for _ in range(reader.count(_MEMBER_BYTES_MIN))]


def _read_member(reader: Reader) -> Member:
    number = reader.u32()
    if number == NOBODY or number > NUMBER_MAX:
        raise FieldSyntaxError(f"a member with the number {number}")
    name = reader.sized_within(NAME_BYTES_MAX)
    uid = reader.sized_within(UID_BYTES_MAX)
    address = reader.sized_within(ADDRESS_BYTES_MAX)
    try:
        text = name.decode()
    except UnicodeDecodeError:
        raise FieldSyntaxError("a name that is not UTF-8") from None
    return Member(number, text, uid, address)


def encode_members(members: Members) -> bytes:
    writer = BytesWriter()
    write_members(writer, members)
    return writer.getvalue()


def decode_members(data: bytes) -> Members:
    reader = Reader(data, 0, len(data))
    members = read_members(reader)
    reader.require_end()
    return members
