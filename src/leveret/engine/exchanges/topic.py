"""Topic exchanges: binding keys are patterns of words with `*` and `#`. See `topic_trie`."""

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
        self.trie.add(binding)

    def unindex(self, binding: Binding) -> None:
        self.trie.remove(binding)
