"""Faults of request bodies in plain words."""

from typing import Literal

import msgspec
import pytest

from leveret.http.framework.body_faults import plain_fault

pytestmark = pytest.mark.interpreted_only("it is not compiled")


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    size: int


class Body(msgspec.Struct):
    limit: int | None = None
    kind: Literal["move", "copy"] = "move"
    inner: Inner | None = None
    names: list[str] = []
    when: bool | float = 0.0


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"limit": "x"}', "'limit' must be a whole number or null, not a text"),
        (b'{"kind": "zap"}', "'kind' cannot be 'zap'"),
        (b'{"inner": {}}', "'size' is missing in 'inner'"),
        (b'{"inner": {"size": 1, "x": 2}}', "'x' is not a known field in 'inner'"),
        (b'{"names": [1]}', "'names[0]' must be a text, not a whole number"),
        (b'{"when": []}', "'when' must be true or false or a number, not a list"),
        (b"[]", "the body must be an object, not a list"),
        (b"{", "the body is empty, or ends too early"),
        (b"", "the body is empty, or ends too early"),
    ],
)
def test_faults_are_sentences(data: bytes, said: str) -> None:
    with pytest.raises(msgspec.DecodeError) as fault:
        msgspec.json.decode(data, type=Body)
    assert plain_fault(str(fault.value)) == said
