"""Topic exchanges: binding keys are patterns of words with `*` and `#`. See `topic_trie`."""

from typing import Final

from leveret.engine.exchanges.binding import Binding
from leveret.engine.exchanges.exchange import (
    NODE_STEPS,
    VISIT_STEPS,
    WORDS_PER_STEP,
    Exchange,
    Headers,
)
from leveret.engine.exchanges.topic_trie import TopicTrie
from leveret.engine.target import Target

NODE_BYTES: Final = 64  # that a node counts as a part of definitions; it takes 280 of memory


class TopicExchange(Exchange):
    """An exchange of type topic."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "topic")
        self.trie = TopicTrie()

    def match(self, routing_key: str, headers: Headers, found: list[Target]) -> None:
        words = headers.words(routing_key)
        self.trie.match(words, found)
        self.looked_at = self.trie.steps * NODE_STEPS + len(words) // WORDS_PER_STEP + VISIT_STEPS

    def index(self, binding: Binding) -> None:
        before = self.trie.nodes
        self.trie.add(binding)
        self.binding_bytes += (self.trie.nodes - before) * NODE_BYTES

    def unindex(self, binding: Binding) -> None:
        before = self.trie.nodes
        self.trie.remove(binding)
        self.binding_bytes += (self.trie.nodes - before) * NODE_BYTES
