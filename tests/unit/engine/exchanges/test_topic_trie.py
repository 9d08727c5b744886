"""The topic trie: normalised patterns, bounded walks, and removal of unneeded nodes."""

import pytest

from leveret.engine.exchanges.binding import Binding
from leveret.engine.exchanges.topic_trie import TopicTrie, pattern_words
from leveret.engine.target import Target

KEY_BYTES_MAX = 255


def binding(pattern: str) -> Binding:
    return Binding("x", Target(pattern), True, pattern, {})


def trie_of(patterns: list[str]) -> TopicTrie:
    trie = TopicTrie()
    for pattern in patterns:
        trie.add(binding(pattern))
    return trie


def walk(trie: TopicTrie, key: str) -> list[str]:
    found: list[Target] = []
    trie.match(key.split(".") if key else [], found)
    return [target.name for target in found]


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("", []),
        (".", ["", ""]),
        ("a.b", ["a", "b"]),
        ("#", ["#"]),
        ("#.#.#", ["#"]),
        ("#.*", ["*", "#"]),
        ("*.#.*.#.a", ["*", "*", "#", "a"]),
        ("a.#.#.b.#.*", ["a", "#", "b", "*", "#"]),
        ("#.a.#", ["#", "a", "#"]),
        ("*.*", ["*", "*"]),
        ("a#.#b.**", ["a#", "#b", "**"]),
    ],
)
def test_pattern_is_normalised(pattern: str, words: list[str]) -> None:
    assert pattern_words(pattern) == words


def test_target_is_found_once_even_if_its_pattern_matches_in_many_ways() -> None:
    trie = trie_of(["#.a.#.a.#", "#"])
    assert sorted(walk(trie, "a.a.a.a")) == ["#", "#.a.#.a.#"]


@pytest.mark.parametrize("hashes", [1, 4, 16, 64, 85])
@pytest.mark.parametrize("ending", ["", "b"])
def test_walk_of_many_hashes_is_bounded_by_words_times_nodes(hashes: int, ending: str) -> None:
    """A matcher that tried each way to match separately would take C(256, hashes) steps."""
    pattern = "#" + ".." * hashes + ".#.".join([""] * hashes) + "." + ending
    pattern = pattern[:KEY_BYTES_MAX]
    trie = trie_of([pattern])
    nodes = trie.count_nodes()
    key = "." * KEY_BYTES_MAX
    walk(trie, key)
    assert trie.steps <= len(key.split(".")) * nodes


def test_work_grows_with_the_words_when_a_pattern_has_many_hashes() -> None:
    trie = trie_of([".".join(["#", "a"] * 60)])
    steps = []
    for words in (50, 100, 200, 400):
        walk(trie, ".".join(["a"] * words))
        steps.append(trie.steps)
    assert steps[3] <= 2 * steps[2] + 120 * 60
    assert steps[3] <= 400 * trie.count_nodes()


@pytest.mark.compiled_only("so many take long on the sources, and do the same there")
def test_hundred_thousand_plain_patterns_do_not_add_to_the_work() -> None:
    patterns = [f"a{number % 100}.b{number}.c" for number in range(100_000)]
    small = trie_of(patterns[:100])
    large = trie_of(patterns)
    for trie in (small, large):
        assert walk(trie, "a7.b7.c") == ["a7.b7.c"]
    assert large.steps == small.steps == 3


@pytest.mark.compiled_only("so many take long on the sources, and do the same there")
def test_hundred_thousand_patterns_behind_one_hash_do_not_add_to_the_work() -> None:
    trie = trie_of([f"#.b{number}" for number in range(100_000)])
    assert walk(trie, "x.y.b77777") == ["#.b77777"]
    assert trie.steps <= 2 * 3


def test_walk_ends_when_no_pattern_can_match() -> None:
    trie = trie_of(["a.b.c.d"])
    assert walk(trie, "x" + ".y" * 100) == []
    assert trie.steps == 1


def test_nodes_are_removed_with_the_last_pattern_that_needs_them() -> None:
    trie = TopicTrie()
    bindings = [binding(pattern) for pattern in ("a", "a.b.#", "a.b.#.c", "a.*", "#", "")]
    for new in bindings:
        trie.add(new)
    assert trie.count_nodes() == 7
    for old, left in zip(bindings, (7, 7, 4, 2, 1, 1), strict=True):
        trie.remove(old)
        assert trie.count_nodes() == left
