"""Topic patterns in a trie, and the search for the patterns that match a routing key.

    *  stands for exactly one word, #  for any number of words, including none

Words may be empty: `a.*` matches `a.`. The empty key has no word, so that `#` matches it and `*`
does not. `*` and `#` are special only as whole words.

Patterns are normalised first: `#.#` becomes `#`, and `#.*` becomes `*.#`. So each run of wildcards
is some stars followed by at most one `#`, and a `#` node never has a `#` child.

The walk goes through the words of a key and keeps the list of nodes that the words so far can lead
to. A `#` node stays in the list once it is reached. A pattern that ends in a `#` node matches at
that moment, because `#` matches the rest of the key. Every other node has one parent and one edge
that leads to it, so that it is in the list at most once per word. So a walk costs at most words
times nodes, whatever the patterns, and never visits the same node twice for one word.
"""

from mypy_extensions import i64

from leveret.engine.exchanges.binding import Binding, add_to_row, append_targets, remove_from_row
from leveret.engine.exchanges.exchange import NODE_STEPS, require_steps
from leveret.engine.target import Target


class TopicNode:
    """A prefix of patterns. It exists while a pattern goes through it or ends in it."""

    def __init__(self) -> None:
        self.words: dict[str, TopicNode] | None = None  # next nodes by literal word
        self.star: TopicNode | None = None  # next node by *
        self.hash: TopicNode | None = None  # next node by #
        self.row: list[Binding] | None = None  # bindings whose pattern ends here
        self.walk: i64 = 0  # number of the last walk that reached it; used for # nodes only

    def next(self, word: str) -> "TopicNode | None":
        """Return the node that a word of a pattern leads to, or None."""
        if word == "*":
            return self.star
        if word == "#":
            return self.hash
        return self.words.get(word) if self.words is not None else None

    def grow(self, word: str) -> "TopicNode":
        """Return the node that a word of a pattern leads to; create it if it is missing."""
        node = self.next(word)
        if node is not None:
            return node
        node = TopicNode()
        if word == "*":
            self.star = node
        elif word == "#":
            self.hash = node
        elif self.words is not None:
            self.words[word] = node
        else:
            self.words = {word: node}
        return node

    def cut(self, word: str) -> None:
        """Remove the node that a word of a pattern leads to."""
        if word == "*":
            self.star = None
        elif word == "#":
            self.hash = None
        else:
            assert self.words is not None
            del self.words[word]
            if not self.words:
                self.words = None

    def has_next(self) -> bool:
        """Return True if a literal word or * leads on from this node."""
        return self.words is not None or self.star is not None

    def is_bare(self) -> bool:
        """Return True if no pattern needs this node any more."""
        return self.row is None and self.hash is None and not self.has_next()


class TopicTrie:
    """The patterns of one exchange."""

    def __init__(self) -> None:
        self.root = TopicNode()
        self.nodes: i64 = 1  # with the root
        self.steps: i64 = 0  # nodes that the last walk examined, counted for each word
        self._walk: i64 = 0  # number of the current walk
        # The lists of a walk, reused so that a message allocates none. Empty between walks.
        self._reached: list[TopicNode] = []  # by the words so far, without # nodes
        self._next: list[TopicNode] = []
        self._open: list[TopicNode] = []  # the # nodes reached so far from which patterns go on

    def add(self, binding: Binding) -> None:
        """Add a binding under the pattern of its routing key."""
        node = self.root
        for word in pattern_words(binding.routing_key):
            if node.next(word) is None:
                self.nodes += 1
            node = node.grow(word)
        if node.row is None:
            node.row = []
        add_to_row(node.row, binding)

    def remove(self, binding: Binding) -> None:
        """Remove a binding, and every node that only its pattern needed."""
        words = pattern_words(binding.routing_key)
        path = self._path(words)
        row = path[-1].row
        assert row is not None
        remove_from_row(row, binding)
        if not row:
            path[-1].row = None
            self.nodes -= _prune(path, words)

    def match(self, words: list[str], found: list[Target]) -> None:
        """Append the targets of all patterns that match a key with these words."""
        try:
            self._match(words, found)
        except Exception:  # the next walk must begin with empty lists
            self._reached = []
            self._next = []
            self._open = []
            raise

    def _match(self, words: list[str], found: list[Target]) -> None:
        self.steps = 0
        self._walk += 1
        self._reach(self.root, found)
        for word in words:
            if not self._reached and not self._open:
                break
            self._step(word, found)
        for node in self._reached:
            if node.row is not None:
                append_targets(node.row, found)
        self._reached.clear()
        self._open.clear()

    def count_nodes(self) -> int:
        """Return the number of nodes, including the root."""
        count = 0
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            count += 1
            if node.words is not None:
                waiting.extend(node.words.values())
            if node.star is not None:
                waiting.append(node.star)
            if node.hash is not None:
                waiting.append(node.hash)
        return count

    def _step(self, word: str, found: list[Target]) -> None:
        """Advance the walk by one word."""
        before = self._reached
        self._reached = self._next
        # A # node that this word adds to `_open` takes part from the next word on.
        open_count: i64 = len(self._open)
        self.steps += len(before) + open_count
        require_steps(self.steps * NODE_STEPS)
        for node in before:
            self._leave(node, word, found)
        index: i64 = 0
        while index < open_count:
            self._leave(self._open[index], word, found)
            index += 1
        before.clear()
        self._next = before

    def _leave(self, node: TopicNode, word: str, found: list[Target]) -> None:
        words = node.words
        if words is not None:
            child = words.get(word)
            if child is not None:
                self._reach(child, found)
        star = node.star
        if star is not None:
            self._reach(star, found)

    def _reach(self, node: TopicNode, found: list[Target]) -> None:
        """Add a node that is not a # node, and its # child: # also matches no word."""
        self._reached.append(node)
        rest = node.hash
        if rest is not None and rest.walk != self._walk:
            rest.walk = self._walk
            if rest.row is not None:
                append_targets(rest.row, found)
            if rest.has_next():
                self._open.append(rest)

    def _path(self, words: list[str]) -> list[TopicNode]:
        node = self.root
        path = [node]
        for word in words:
            following = node.next(word)
            assert following is not None
            node = following
            path.append(node)
        return path


def pattern_words(pattern: str) -> list[str]:
    """Return the words of a normalised pattern."""
    if not pattern:
        return []
    words: list[str] = []
    has_hash = False  # the run of wildcards at the end of `words` contains a # to be added
    for word in pattern.split("."):
        if word == "#":
            has_hash = True
            continue
        if has_hash and word != "*":
            words.append("#")
            has_hash = False
        words.append(word)
    if has_hash:
        words.append("#")
    return words


def _prune(path: list[TopicNode], words: list[str]) -> i64:
    """Remove the nodes at the end of a path that no pattern needs, and return their number.

    The root stays.
    """
    depth = len(words)
    while depth > 0 and path[depth].is_bare():
        depth -= 1
        path[depth].cut(words[depth])
    return len(words) - depth
