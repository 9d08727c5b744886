"""Lists: the query parameters that all lists take, and how a long list is sent.

    columns=name,message_stats.publish   only these keys; dots lead into objects
    sort=name, sort_reverse=true         sort by one key; dots as above
    name=x, use_regex=true               only names that contain x, or match it
    page=1, page_size=100                one page, in an object with the counts

Some lists also take `only` (rows of one kind) and, with `page`, `totals` (sums over all pages).

Without `page` the answer is an array. The list is described in slices (`leveret.slices`), and a
long array is sent piece by piece: ten thousand queues neither block the broker nor fill its memory
with JSON. Clients that accept gzip get a long list compressed.

A page of a long list describes only its own rows, if the list can read the sort key from a row
(`RowReads`). Otherwise all rows are described first, because the key is part of the description.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar, get_origin

import msgspec
from msgspec import UNSET, UnsetType
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp

from leveret.http.framework.compression import HEADERS, accepts_gzip, compressed, gzip_pieces
from leveret.http.framework.operations import Handler, Operation, Query
from leveret.http.framework.request_parts import slices_of
from leveret.http.framework.responses import ErrorBody, encode_json, json_response
from leveret.http.framework.sorting import sorted_range
from leveret.patterns import Pattern
from leveret.slices import Slices

PAGE_SIZE: Final = 100
PAGE_SIZE_MAX: Final = 500
PIECE_ITEMS_MAX: Final = 256  # items that are encoded at once
PAGE_DIGITS_MAX: Final = 9
_SHORT: Final = 64  # items of a list that is sent as one piece, with its length
_AT_A_TIME: Final = 8  # items between two looks at the clock

LIST_QUERY: Final = (
    Query("columns", "keys to return, separated by commas; dots lead into objects"),
    Query("sort", "key to sort by; dots lead into objects"),
    Query("sort_reverse", "whether to reverse the order", bool),
    Query("name", "only objects whose name contains this text"),
    Query("use_regex", "whether `name` is a regular expression", bool),
    Query("page", "number of the page, from 1; the answer is an object", int),
    Query("page_size", f"items on a page; default {PAGE_SIZE}, at most {PAGE_SIZE_MAX}", int),
    Query("pagination", "whether to return the first page if `page` is not given", bool),
)

TOTALS_QUERY: Final = Query("totals", "with `page`: whether to sum up all pages", bool)

Row = TypeVar("Row")
ColumnTree = dict[str, "ColumnTree | None"]


class ListPage(msgspec.Struct):
    """One page of a list."""

    filtered_count: int
    item_count: int
    items: list[Any]
    page: int
    page_count: int
    page_size: int
    total_count: int
    totals: dict[str, int] | UnsetType = UNSET  # sums over all pages


class RowReads(msgspec.Struct, Generic[Row], kw_only=True):
    """Values that a list reads from a row without describing it."""

    natural_order: Callable[[Row], Any] | None = None  # sort key; None: the rows are in order
    texts: Callable[[Row], Sequence[str]] | None = None  # compared with `name` as the name is
    sort_keys: Mapping[str, Callable[[Row], Any]] = {}  # by the value of `sort`
    only: Mapping[str, Callable[[Row], bool]] = {}  # by the value of `only`
    totals: Mapping[str, Callable[[Row], int]] = {}

    def query(self) -> tuple[Query, ...]:
        """Return the query parameters of a list with these reads."""
        names = ", ".join(self.only)
        only = (Query("only", f"only rows of these kinds, separated by commas: {names}"),)
        totals = (TOTALS_QUERY,) if self.totals else ()
        return (*LIST_QUERY, *(only if self.only else ()), *totals)


class ListQuery(msgspec.Struct):
    """The query parameters of a list, decoded."""

    columns: ColumnTree
    sort: list[str]  # the parts of the key; empty: unsorted
    is_reversed: bool
    matches: Callable[[str], bool] | None  # None: all names
    page: int  # 0: no pages
    page_size: int
    only: list[str]
    with_totals: bool


def list_query_of(request: Request) -> ListQuery:
    """Return the decoded query of a list. Answer 400 if a value is invalid."""
    query = request.query_params
    page_text = query.get("page") or ("1" if flag_of(request, "pagination") else "")
    page = _number("page", page_text, None) if page_text else 0
    page_size = _number("page_size", query.get("page_size") or str(PAGE_SIZE), PAGE_SIZE_MAX)
    sort = query.get("sort", "")
    return ListQuery(
        columns=columns_of(query.get("columns", "")),
        sort=sort.split(".") if sort else [],
        is_reversed=flag_of(request, "sort_reverse"),
        matches=_matcher(query.get("name", ""), flag_of(request, "use_regex")),
        page=page,
        page_size=page_size,
        only=[name for name in query.get("only", "").split(",") if name],
        with_totals=flag_of(request, "totals"),
    )


def flag_of(request: Request, name: str, *, is_set: bool = False) -> bool:
    """Return a query parameter that is true or false; `is_set` if it is not given."""
    text = request.query_params.get(name, str(is_set)).lower()
    if text not in ("true", "false", ""):
        raise HTTPException(400, f"{name} must be true or false")
    return text == "true"


def _number(name: str, text: str, most: int | None) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > PAGE_DIGITS_MAX or int(text) == 0:
        raise HTTPException(400, f"{name} must be a whole number from 1 up")
    if most is not None and int(text) > most:
        raise HTTPException(400, f"{name} must be at most {most}")
    return int(text)


def _matcher(name: str, is_regex: bool) -> Callable[[str], bool] | None:
    if not name:
        return None
    if not is_regex:
        wanted = name.lower()
        return lambda text: wanted in text.lower()
    return Pattern("(?i)" + name).matches


def columns_of(text: str) -> ColumnTree:
    """Return the keys of `a,b.c` as a tree. An empty tree means all keys."""
    columns: ColumnTree = {}
    for path in text.split(","):
        at = columns
        parts = path.split(".") if path else []
        for part in parts[:-1]:
            below = at.get(part)
            if below is None:
                at[part] = below = {}
            at = below
        if parts:
            at.setdefault(parts[-1], None)
    return columns


def keep_columns(item: object, columns: ColumnTree) -> object:
    """Return an object, or each object of an array, with only these keys."""
    if isinstance(item, dict):
        return {
            key: value if below is None else keep_columns(value, below)
            for key, value in item.items()
            if (below := columns.get(key, _ABSENT)) is not _ABSENT
        }
    if isinstance(item, list):
        return [keep_columns(one, columns) for one in item]
    return item


_ABSENT: Final[Any] = object()


def with_columns(request: Request, item: object) -> object:
    """Return one object with only the columns that the request asks for."""
    columns = columns_of(request.query_params.get("columns", ""))
    return keep_columns(msgspec.to_builtins(item), columns) if columns else item


async def answer_list(
    request: Request,
    rows: Sequence[Row],
    name_of: Callable[[Row], str],
    describe: Callable[[Row], object],
    reads: RowReads[Row] | None = None,
) -> Response:
    """Return a response with the description of each row.

    `describe` returns None for a row that has been deleted meanwhile.
    """
    wanted = list_query_of(request)
    slices = slices_of(request)
    reads = reads or RowReads()
    found = await _matching(rows, _tests(wanted, name_of, reads), slices)
    totals = await _totals(found, reads, slices) if wanted.page and wanted.with_totals else UNSET
    first, end = _range(wanted, len(found))
    if wanted.sort and ".".join(wanted.sort) not in reads.sort_keys:
        items = await _described(await _natural(found, reads, slices), describe, slices)
        found_count = len(items)
        chosen: Sequence[Any] = await _ordered(items, wanted, reads, slices, first, end)
        describe = _itself
    else:
        found_count = len(found)
        chosen = await _ordered(found, wanted, reads, slices, first, end)
    if not wanted.page:
        return await _array(request, chosen, describe, wanted.columns, slices)
    described = await _described(chosen, describe, slices)
    return _page(request, wanted, len(rows), found_count, described, totals)


def _itself(item: object) -> object:
    return item


def _tests(
    wanted: ListQuery, name_of: Callable[[Row], str], reads: RowReads[Row]
) -> list[Callable[[Row], bool]]:
    """Return the conditions that a row must meet. Answer 400 if one is unknown."""
    unknown = [name for name in wanted.only if name not in reads.only]
    if unknown:
        known = ", ".join(reads.only) or "nothing in this list"
        raise HTTPException(400, f"only must be one of: {known}")
    tests = [reads.only[name] for name in wanted.only]
    matches = wanted.matches
    if matches is not None:
        texts = reads.texts or _no_texts
        tests.append(lambda row: matches(name_of(row)) or any(map(matches, texts(row))))
    return tests


def _no_texts(row: object) -> Sequence[str]:
    return ()


async def _matching(
    rows: Sequence[Row], tests: list[Callable[[Row], bool]], slices: Slices
) -> Sequence[Row]:
    if not tests:
        return rows
    found: list[Row] = []
    for index, row in enumerate(rows):
        if all(test(row) for test in tests):
            found.append(row)
        if index % _AT_A_TIME == 0:
            await slices.rest_if_over()
    return found


async def _totals(rows: Sequence[Row], reads: RowReads[Row], slices: Slices) -> dict[str, int]:
    sums = dict.fromkeys(reads.totals, 0)
    for index, row in enumerate(rows):
        for name, read in reads.totals.items():
            sums[name] += read(row)
        if index % _AT_A_TIME == 0:
            await slices.rest_if_over()
    return sums


def _range(wanted: ListQuery, count: int) -> tuple[int, int]:
    """Return the first place of the page, and the place after its last."""
    if not wanted.page:
        return 0, count
    first = (wanted.page - 1) * wanted.page_size
    return first, first + wanted.page_size


async def _natural(
    rows: Sequence[Row],
    reads: RowReads[Row],
    slices: Slices,
    first: int = 0,
    end: int | None = None,
    is_reversed: bool = False,
) -> Sequence[Row]:
    """Return a range of the rows in the order that they have without `sort`."""
    key = reads.natural_order
    if key is None:
        return (rows[::-1] if is_reversed else rows)[first:end]
    return await sorted_range(rows, key, slices, first=first, end=end, is_reversed=is_reversed)


async def _ordered(
    rows: Sequence[Row],
    wanted: ListQuery,
    reads: RowReads[Row],
    slices: Slices,
    first: int,
    end: int,
) -> Sequence[Row]:
    """Return a range of the rows, or of their descriptions, in the wanted order."""
    if not wanted.sort:
        return await _natural(rows, reads, slices, first, end, wanted.is_reversed)
    name = ".".join(wanted.sort)
    read = reads.sort_keys.get(name)
    key = partial(_value_at, wanted.sort) if read is None else read
    return await sorted_range(
        rows,
        lambda row: _sort_key(key(row)),
        slices,
        first=first,
        end=end,
        is_reversed=wanted.is_reversed,
        tie=reads.natural_order if read is not None else None,  # descriptions are in that order
    )


def _page(
    request: Request,
    wanted: ListQuery,
    total: int,
    filtered: int,
    items: Sequence[object],
    totals: dict[str, int] | UnsetType,
) -> Response:
    page_count = -(-filtered // wanted.page_size)
    if wanted.page > max(page_count, 1):
        reason = (
            f"Page out of range, page: {wanted.page} page size: {wanted.page_size}, len: {filtered}"
        )
        return json_response(ErrorBody("page_out_of_range", reason), status=400)
    if wanted.columns:
        items = [keep_columns(msgspec.to_builtins(item), wanted.columns) for item in items]
    page = ListPage(
        filtered_count=filtered,
        item_count=len(items),
        items=list(items),
        page=wanted.page,
        page_count=page_count,
        page_size=wanted.page_size,
        total_count=total,
        totals=totals,
    )
    return compressed(request, json_response(page))


def _value_at(path: list[str], item: object) -> Any:
    """Return the value of a description at the path of a sort key, or None."""
    for part in path:
        if isinstance(item, dict):
            item = item.get(part)
        elif isinstance(item, msgspec.Struct) and part in item.__struct_fields__:
            item = getattr(item, part)
        else:  # a path may not lead into Python's own attributes
            return None
    return item


def _sort_key(value: Any) -> tuple[int, Any]:
    """Return the sort key of a value: nothing comes first, then numbers, then texts."""
    if value is None or value is UNSET:
        return 0, 0
    if isinstance(value, bool | int | float):
        return 1, value
    return (2, value) if isinstance(value, str) else (3, str(value))


async def _described(
    rows: Sequence[Row], describe: Callable[[Row], object], slices: Slices
) -> list[object]:
    items: list[object] = []
    for index, row in enumerate(rows):
        item = describe(row)
        if item is not None:
            items.append(item)
        if index % _AT_A_TIME == 0:
            await slices.rest_if_over()
    return items


async def _array(
    request: Request,
    rows: Sequence[Row],
    describe: Callable[[Row], object],
    columns: ColumnTree,
    slices: Slices,
) -> Response:
    pieces = array_pieces(rows, describe, columns, slices)
    if len(rows) <= _SHORT:
        body = b"".join([piece async for piece in pieces])
        return compressed(request, Response(body, media_type="application/json"))
    if accepts_gzip(request):
        return StreamingResponse(gzip_pieces(pieces), 200, HEADERS, media_type="application/json")
    return StreamingResponse(pieces, media_type="application/json")


async def array_pieces(
    rows: Sequence[Row], describe: Callable[[Row], object], columns: ColumnTree, slices: Slices
) -> AsyncIterator[bytes]:
    """Yield a JSON array of the rows' descriptions, piece by piece.

    The time that the client takes to read a piece does not count as work.
    """
    lead = b"["
    batch: list[object] = []
    slices.begin()
    for index, row in enumerate(rows):
        item = describe(row)
        if item is not None:
            batch.append(keep_columns(msgspec.to_builtins(item), columns) if columns else item)
        is_over = index % _AT_A_TIME == 0 and slices.is_over()
        if batch and (is_over or len(batch) >= PIECE_ITEMS_MAX):
            piece = lead + encode_json(batch)[1:-1]
            lead = b","
            batch = []
            await slices.rest()
            yield piece
            slices.begin()
    yield lead + encode_json(batch)[1:-1] + b"]" if batch or lead == b"[" else b"]"


def with_list_query(operation: Operation) -> Operation:
    """Add the query parameters of lists to an operation that answers a whole short list."""
    is_list = operation.method == "GET" and get_origin(operation.answer) is list
    if not is_list or operation.query:
        return operation
    handler = partial(_answer_short, operation.handler)
    return msgspec.structs.replace(operation, handler=handler, query=LIST_QUERY)


async def _answer_short(handler: Handler, request: Request) -> ASGIApp:
    answer = await handler(request)
    if not _LIST_NAMES.intersection(request.query_params) or not isinstance(answer, Response):
        return answer
    if answer.status_code != 200:
        return answer
    return await answer_list(request, msgspec.json.decode(answer.body), _name_in, _itself)


def _name_in(item: Any) -> str:
    """Return the text that `name` is compared with: permissions have a user, but no name."""
    return str(item.get("name", item.get("user", "")))


_LIST_NAMES: Final = frozenset(query.name for query in LIST_QUERY)
