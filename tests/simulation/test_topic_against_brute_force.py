"""Compare topic routing with a brute-force matcher that follows the definition of `*` and `#`.

The patterns have `#` first, in the middle, last and doubled, empty words, and there is the empty
pattern. Some keys are made from the patterns, so that many match; others are random.
"""

import random
from collections import Counter

from leveret.engine.exchanges.binding import Binding
from leveret.engine.exchanges.exchange import Headers
from leveret.engine.exchanges.topic import TopicExchange
from leveret.engine.target import Target

PAIRS = 100_000
PATTERNS_PER_ROUND = 20
KEYS_PER_ROUND = 20

WORDS = ["a", "b", ""]
PATTERN_WORDS = ["a", "b", "", "*", "*", "#", "#", "#"]

# Each of these must occur among the pairs that match and among the pairs that do not.
TRAITS = [
    "# first",
    "# in the middle",
    "# last",
    "# doubled",
    "# apart",
    "# beside *",
    "empty word in pattern",
    "empty word in key",
    "empty key",
    "empty pattern",
]


def split(text: str) -> list[str]:
    return text.split(".") if text else []


def fits(pattern: list[str], key: list[str]) -> bool:
    """Match by the definition: `*` is one word, `#` any number of words, any other word itself."""
    if not pattern:
        return not key
    if pattern[0] == "#":
        return any(fits(pattern[1:], key[taken:]) for taken in range(len(key) + 1))
    if not key or pattern[0] not in ("*", key[0]):
        return False
    return fits(pattern[1:], key[1:])


def random_pattern(rng: random.Random) -> str:
    return ".".join(rng.choice(PATTERN_WORDS) for _ in range(rng.randrange(7)))


def random_key(rng: random.Random, patterns: list[str]) -> str:
    if rng.random() < 0.3:
        return ".".join(rng.choice(WORDS) for _ in range(rng.randrange(6)))
    words: list[str] = []
    for word in split(rng.choice(patterns)):
        count = {"*": 1, "#": rng.randrange(3)}.get(word)
        if count is None:
            words.append(word)
        else:
            words.extend(rng.choice(WORDS) for _ in range(count))
    return ".".join(words)


def traits(pattern: str, key: str) -> list[str]:
    """Return the special cases that a pair covers."""
    words = split(pattern)
    hashes = [place for place, word in enumerate(words) if word == "#"]
    last = len(words) - 1
    holds = [
        0 in hashes and last > 0,
        any(0 < place < last for place in hashes),
        last in hashes and last > 0,
        any(place + 1 in hashes for place in hashes),
        len(hashes) > 1,
        "#.*" in pattern or "*.#" in pattern,
        "" in words,
        "" in split(key),
        not key,
        not pattern,
    ]
    return [trait for trait, held in zip(TRAITS, holds, strict=True) if held]


def route(exchange: TopicExchange, key: str) -> list[str]:
    found: list[Target] = []
    exchange.match(key, Headers(b"", 0, 0), found)
    return sorted([target.name for target in found])


def bind(exchange: TopicExchange, target: Target, pattern: str) -> bool:
    return exchange.add(Binding(exchange.name, target, True, pattern, {}))


def test_routing_equals_brute_force_on_many_pairs(seed: int) -> None:
    rng = random.Random(seed)
    pairs = 0
    matches: Counter[str] = Counter()
    misses: Counter[str] = Counter()
    while pairs < PAIRS:
        exchange = TopicExchange("x")
        patterns = sorted({random_pattern(rng) for _ in range(PATTERNS_PER_ROUND)})
        for pattern in patterns:
            bind(exchange, Target(pattern), pattern)
        for _ in range(KEYS_PER_ROUND):
            key = random_key(rng, patterns)
            expected = [pattern for pattern in patterns if fits(split(pattern), split(key))]
            assert route(exchange, key) == expected, f"seed {seed}: key {key!r} of {patterns}"
            for pattern in patterns:
                tally = matches if pattern in expected else misses
                tally.update(["all", *traits(pattern, key)])
            pairs += len(patterns)
    assert matches["all"] + misses["all"] == pairs
    assert matches["all"] >= pairs / 4, f"seed {seed}: {matches['all']} of {pairs} pairs match"
    assert matches.keys() == {"all", *TRAITS}, f"seed {seed}"
    assert misses.keys() == {"all", *TRAITS}, f"seed {seed}"


def test_binding_and_unbinding_equal_a_plain_list(seed: int) -> None:
    rng = random.Random(seed)
    queues = [Target(f"q{number}") for number in range(8)]
    routed = 0
    for _ in range(40):
        exchange = TopicExchange("x")
        model: list[tuple[str, str]] = []
        patterns = [random_pattern(rng) for _ in range(25)]
        for _ in range(150):
            queue = rng.choice(queues)
            entry = (queue.name, rng.choice(patterns))
            action = rng.random()
            if action < 0.45:
                assert bind(exchange, queue, entry[1]) == (entry not in model), f"seed {seed}"
                if entry not in model:
                    model.append(entry)
            elif action < 0.65:
                assert exchange.remove(queue, entry[1], {}) == (entry in model), f"seed {seed}"
                if entry in model:
                    model.remove(entry)
            elif action < 0.68:
                left = [kept for kept in model if kept[0] != queue.name]
                assert exchange.remove_target(queue) == len(model) - len(left), f"seed {seed}"
                model = left
            else:
                key = random_key(rng, patterns)
                expected = sorted(
                    [name for name, pattern in model if fits(split(pattern), split(key))]
                )
                assert route(exchange, key) == expected, f"seed {seed}: key {key!r} of {model}"
                routed += len(expected) > 0
        listed = [(found.target.name, found.routing_key) for found in exchange.bindings.values()]
        assert listed == model, f"seed {seed}"
        for queue in queues:
            exchange.remove_target(queue)
        assert exchange.trie.count_nodes() == 1, f"seed {seed}: nodes are left behind"
    assert routed > 300, f"seed {seed}: hardly anything was routed"
