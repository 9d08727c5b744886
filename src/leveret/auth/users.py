"""Users with their password hashes and tags, kept in the register.

    user    name    {"password_hash": "…", "hashing_algorithm": "…", "tags": ["…"]}

Change users inside a turn of the engine. `on_change` is called with the name of a changed user.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from leveret.auth.hashes import PasswordHash, read_hash
from leveret.auth.user import NAME_LENGTH_MAX, TOKEN_USER_PREFIX
from leveret.engine.vhosts.register import Register
from leveret.errors import PreconditionFailedError

USER: Final = "user"
TAGS_MAX: Final = 64


class Account:
    """A user as stored: name, password hash and tags."""

    __slots__ = ("name", "password", "tags")

    def __init__(self, name: str, password: PasswordHash, tags: tuple[str, ...]) -> None:
        self.name = name
        self.password = password
        self.tags = tags


class Users:
    """All users by name."""

    def __init__(self, register: Register, on_change: Callable[[str], None]) -> None:
        self._register = register
        self._on_change = on_change
        self._accounts: dict[str, Account] = {}

    def load(self) -> None:
        """Read the register; call this once, before the first login."""
        self._register.load_each(USER, self._load)

    def _load(self, name: str, text: str) -> None:
        """Add a user. A user whose entry cannot be read cannot log in until it is set again."""
        fields = json.loads(text)
        password = read_hash(fields["password_hash"], fields["hashing_algorithm"])
        self._accounts[name] = Account(name, password, parse_tags(list(fields["tags"])))

    def get(self, name: str) -> Account | None:
        return self._accounts.get(name)

    def all(self) -> list[Account]:
        """Return all users, sorted by name."""
        return sorted(self._accounts.values(), key=_name_of)

    def put(self, name: str, password: PasswordHash, tags: Iterable[str]) -> bool:
        """Make or change a user; True if new. Raises PreconditionFailedError for a bad name."""
        account = Account(name, password, tuple(tags))
        require_valid(name, account.tags)
        is_new = name not in self._accounts
        self._accounts[name] = account
        fields = {
            "password_hash": password.text,
            "hashing_algorithm": password.algorithm,
            "tags": account.tags,
        }
        self._register.put(USER, name, json.dumps(fields))
        self._on_change(name)
        return is_new

    def drop(self, name: str) -> bool:
        """Delete a user; False if there is none. `UserDirectory.drop_user` deletes the rest."""
        has_entry = self._register.drop(USER, name)
        if self._accounts.pop(name, None) is None and not has_entry:
            return False
        self._on_change(name)
        return True


def parse_tags(tags: str | Iterable[str]) -> tuple[str, ...]:
    """Parse tags from a list, or from a text with commas."""
    parts = tags.split(",") if isinstance(tags, str) else tags
    return tuple(tag for tag in (part.strip() for part in parts) if tag)


def _name_of(account: Account) -> str:
    return account.name


def require_valid(name: str, tags: Sequence[str]) -> None:
    """Raise PreconditionFailedError for a name or tags that a user cannot have."""
    if not name or len(name) > NAME_LENGTH_MAX or not _is_text(name):
        raise PreconditionFailedError(
            f"a user's name has 1 to {NAME_LENGTH_MAX} characters of UTF-8"
        )
    if name.startswith(TOKEN_USER_PREFIX):
        raise PreconditionFailedError(
            f"names that begin with {TOKEN_USER_PREFIX} are for the users of tokens"
        )
    if len(tags) > TAGS_MAX or any(len(tag) > NAME_LENGTH_MAX for tag in tags):
        raise PreconditionFailedError(
            f"a user has at most {TAGS_MAX} tags of at most {NAME_LENGTH_MAX} characters"
        )


def _is_text(name: str) -> bool:
    """Return True if a name is valid UTF-8."""
    return not any("\ud800" <= character <= "\udfff" for character in name)
