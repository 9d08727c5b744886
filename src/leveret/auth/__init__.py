"""Who may connect, and what they may do.

- `Authority`    decides over logins; fronts ask it and know nothing else of passwords
- `Credentials`  what a peer logs in with; `Refusal` or `User` is what comes of it
- `User`         who is logged in, and what they may do
- `Directory`    the authority of a node: its `users` and `permissions`, in the register
- `Audit`        who did what
- `Quotas`       how many connections and channels there may be
"""

from leveret.auth.audit import Audit, Event
from leveret.auth.authority import Authority, FixedAuthority
from leveret.auth.directory import Directory
from leveret.auth.hashes import NO_PASSWORD, PasswordHash, hash_password, read_hash
from leveret.auth.limits import Quotas
from leveret.auth.user import (
    ADMINISTRATOR,
    CONFIGURE,
    MONITORING,
    READ,
    WRITE,
    Credentials,
    Refusal,
    User,
    is_loopback,
)
from leveret.auth.users import Account, tags_of

__all__ = [
    "ADMINISTRATOR",
    "CONFIGURE",
    "MONITORING",
    "NO_PASSWORD",
    "READ",
    "WRITE",
    "Account",
    "Audit",
    "Authority",
    "Credentials",
    "Directory",
    "Event",
    "FixedAuthority",
    "PasswordHash",
    "Quotas",
    "Refusal",
    "User",
    "hash_password",
    "is_loopback",
    "read_hash",
    "tags_of",
]
