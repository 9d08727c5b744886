"""The check of the page of differences finds every way in which page and cases can disagree."""

import pytest

from tests.compat.case import Case, Topic
from tests.compat.differences import Entry, faults, read_page
from tests.compat.stage import Stage


def _case(difference: str | None, rabbitmq: str = "other") -> Case:
    topic = Topic("t")
    other = None if difference is None else rabbitmq
    topic.add("c", "title", _nothing, "this", rabbitmq=other, difference=difference)
    return topic.cases[0]


def _nothing(_: Stage) -> str:
    return "this"


def test_agreement_is_no_fault() -> None:
    entries = [Entry("known", True), Entry("unseen", False)]
    assert faults([_case("known"), _case(None)], entries) == []


@pytest.mark.parametrize(
    ("cases", "entries", "words"),
    [
        ([_case("unknown")], [], "is no entry"),
        ([], [Entry("known", True)], "no case names it"),
        ([_case("known")], [Entry("known", False)], "does not say so"),
        ([_case("known", "this")], [Entry("known", True)], "expects the same of both"),
        ([], [Entry("known", False), Entry("known", False)], "stands twice"),
    ],
)
def test_each_disagreement_is_named(cases: list[Case], entries: list[Entry], words: str) -> None:
    (fault,) = faults(cases, entries)
    assert words in fault


def test_case_with_half_a_difference_is_refused() -> None:
    with pytest.raises(ValueError, match="go together"):
        Topic("t").add("c", "title", _nothing, "this", rabbitmq="other")


def test_page_is_read() -> None:
    entries = read_page()
    assert Entry("x-last-death", True) in entries
    assert Entry("x-death-from-publisher", False) in entries
