"""Headers exchanges: a message goes to the bindings whose arguments match its headers.

`x-match` says whether `all` arguments must match (the default) or `any` of them. Arguments whose
name starts with `x-` are skipped, except with `all-with-x` and `any-with-x`; `x-match` itself is
always skipped. An argument without a value (void) requires that the header exists. `all` of no
arguments matches every message, and `any` of no arguments matches none. Values are compared by
`equal_values`.

The index avoids a look at every binding, of which there may be 10,000. It has a bucket for every
(name, value) that a pattern requires. A pattern with `all` is in one of its buckets: the emptiest
one at the time of binding. A pattern with `any` is in all of its buckets. A message is compared
with the patterns in the buckets of its headers; `accepts` decides.
"""

from math import isnan
from typing import Final

from mypy_extensions import i64

from leveret.engine.arguments.header_values import shown_text, shown_value
from leveret.engine.arguments.packed import HEADER_BINDING_VALUES_MAX
from leveret.engine.exchanges.binding import Binding
from leveret.engine.exchanges.exchange import PATTERN_STEPS, Exchange, Headers, require_steps
from leveret.engine.target import Target
from leveret.errors import PreconditionFailedError
from leveret.wire.scan import LONGSTR, VOID
from leveret.wire.tables import Field, Table, equal_values, kind_name

MATCH: Final = "x-match"
# A required header takes 180 bytes of memory, and a bucket of its own 600 more.
VALUE_BYTES: Final = 64
BUCKET_BYTES: Final = 128
_MATCHES: Final = ("all", "any", "all-with-x", "any-with-x")


class HeaderPattern:
    """The headers that one binding requires."""

    def __init__(self, target: Target, arguments: Table) -> None:
        mode = _mode_of(arguments)
        self.target = target
        self.is_any: bool = mode.startswith("any")
        self.wanted: Table = _wanted(arguments, mode.endswith("-with-x"))
        self.buckets: list[Bucket] = []  # the buckets that contain it

    def index_bytes(self) -> i64:
        """Return what the pattern counts as a part of definitions, beside its binding."""
        values: i64 = len(self.wanted)
        buckets = values if self.is_any else 1
        return values * VALUE_BYTES + buckets * BUCKET_BYTES

    def accepts(self, table: Table) -> bool:
        """Return True if these headers match."""
        for name, field in self.wanted.items():
            header = table.get(name)
            matches = header is not None and (field.kind == VOID or equal_values(field, header))
            if matches == self.is_any:
                return matches
        return not self.is_any


class Bucket:
    """The patterns that require one header, with one value or with any value."""

    def __init__(self, name: str, value: object) -> None:
        self.name = name
        self.value = value  # a result of `_value_key`
        self.patterns: dict[HeaderPattern, None] = {}  # a set that keeps its order


class HeaderIndex:
    """All buckets for one header name."""

    def __init__(self) -> None:
        self.present: Bucket | None = None  # for patterns that accept any value
        self.by_value: dict[object, Bucket] = {}

    def find(self, wanted: Field) -> Bucket | None:
        """Return the bucket for the value that a pattern requires, or None."""
        if wanted.kind == VOID:
            return self.present
        return self.by_value.get(_value_key(wanted))

    def make(self, name: str, wanted: Field) -> Bucket:
        """Add a bucket for the value that a pattern requires."""
        bucket = Bucket(name, _value_key(wanted))
        if wanted.kind == VOID:
            self.present = bucket
        else:
            self.by_value[bucket.value] = bucket
        return bucket

    def forget(self, bucket: Bucket) -> None:
        """Remove a bucket that has no pattern any more."""
        if self.present is bucket:
            self.present = None
        else:
            del self.by_value[bucket.value]

    def is_bare(self) -> bool:
        """Return True if no pattern requires this header any more."""
        return self.present is None and not self.by_value


class HeadersExchange(Exchange):
    """An exchange of type headers."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "headers")
        self.key_only = False
        self.per_key = False
        self.binding_values_max = HEADER_BINDING_VALUES_MAX
        self._patterns: dict[Binding, HeaderPattern] = {}
        self._always: dict[HeaderPattern, Target] = {}  # patterns that require nothing
        self._indexes: dict[str, HeaderIndex] = {}  # by header name

    def check_binding(self, routing_key: str, arguments: Table) -> None:
        field = arguments.get(MATCH)
        if field is None:
            return
        if field.kind != LONGSTR:
            raise PreconditionFailedError(
                f"Invalid x-match field type {kind_name(field.kind)} "
                f"(value {shown_value(field)}); expected longstr"
            )
        mode = field.value
        if isinstance(mode, str) and mode not in _MATCHES:
            raise PreconditionFailedError(
                f"Invalid x-match field value {shown_text(mode)}; "
                "expected all, any, all-with-x, or any-with-x"
            )

    def match(self, routing_key: str, headers: Headers, found: list[Target]) -> None:
        self.looked_at = len(self._always)
        found.extend(self._always.values())
        if not self._indexes:
            return
        table = headers.table()
        for name, field in table.items():
            index = self._indexes.get(name)
            if index is None:
                continue
            if index.present is not None:
                self._match_bucket(index.present, table, found)
            if index.by_value:
                bucket = index.by_value.get(_value_key(field))
                if bucket is not None:
                    self._match_bucket(bucket, table, found)

    def index(self, binding: Binding) -> None:
        pattern = HeaderPattern(binding.target, binding.arguments)
        self._patterns[binding] = pattern
        self.binding_bytes += pattern.index_bytes()
        if pattern.is_any:
            for name in pattern.wanted:
                self._enter(pattern, name)
        elif pattern.wanted:
            self._enter(pattern, self._emptiest(pattern))
        else:
            self._always[pattern] = pattern.target

    def unindex(self, binding: Binding) -> None:
        pattern = self._patterns.pop(binding)
        self.binding_bytes -= pattern.index_bytes()
        self._always.pop(pattern, None)
        for bucket in pattern.buckets:
            del bucket.patterns[pattern]
            if not bucket.patterns:
                self._forget(bucket)

    def _match_bucket(self, bucket: Bucket, table: Table, found: list[Target]) -> None:
        for pattern in bucket.patterns:
            self.looked_at += PATTERN_STEPS + len(pattern.wanted)
            require_steps(self.looked_at)
            if pattern.accepts(table):
                found.append(pattern.target)

    def _emptiest(self, pattern: HeaderPattern) -> str:
        """Return the required header of a pattern whose bucket has the fewest patterns."""
        best = ""
        fewest = -1
        for name, field in pattern.wanted.items():
            index = self._indexes.get(name)
            bucket = index.find(field) if index is not None else None
            size = len(bucket.patterns) if bucket is not None else 0
            if fewest < 0 or size < fewest:
                best = name
                fewest = size
        return best

    def _enter(self, pattern: HeaderPattern, name: str) -> None:
        index = self._indexes.get(name)
        if index is None:
            index = HeaderIndex()
            self._indexes[name] = index
        wanted = pattern.wanted[name]
        bucket = index.find(wanted)
        if bucket is None:
            bucket = index.make(name, wanted)
        bucket.patterns[pattern] = None
        pattern.buckets.append(bucket)

    def _forget(self, bucket: Bucket) -> None:
        index = self._indexes[bucket.name]
        index.forget(bucket)
        if index.is_bare():
            del self._indexes[bucket.name]


def _mode_of(arguments: Table) -> str:
    field = arguments.get(MATCH)
    if field is None:
        return "all"
    mode = field.value
    assert isinstance(mode, str)
    return mode


def _wanted(arguments: Table, with_x: bool) -> Table:
    wanted: Table = {}
    for name, field in arguments.items():
        if name != MATCH and (with_x or not name.startswith("x-")):
            wanted[name] = field
    return wanted


def _value_key(field: Field) -> object:
    """Return a dict key that is the same for equal values; different values may share it."""
    value = field.value
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, int):
        return value
    if isinstance(value, float) and not isnan(value):
        return value
    return None  # tables, arrays, decimals, void and NaN, which does not equal itself
