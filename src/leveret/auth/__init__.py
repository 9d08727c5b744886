"""Who may connect, and what they may do.

- `Authenticator`    decides over logins; fronts ask it and know nothing else of passwords
- `Credentials`  what a peer logs in with; `Refusal` or `User` is what comes of it
- `User`         who is logged in, and what they may do
- `UserDirectory`    the authenticator of a node: its `users` and `permissions`, in the register
- `Audit`        who did what
- `Quotas`       how many connections and channels there may be
"""

from leveret.auth.audit import Audit, AuditEvent
from leveret.auth.authenticator import Authenticator, SingleUserAuthenticator
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
from leveret.auth.user_directory import UserDirectory
from leveret.auth.users import Account, parse_tags

__all__ = [
    "ADMINISTRATOR",
    "CONFIGURE",
    "MONITORING",
    "NO_PASSWORD",
    "READ",
    "WRITE",
    "Account",
    "Audit",
    "Authenticator",
    "Credentials",
    "UserDirectory",
    "AuditEvent",
    "SingleUserAuthenticator",
    "PasswordHash",
    "Quotas",
    "Refusal",
    "User",
    "hash_password",
    "is_loopback",
    "read_hash",
    "parse_tags",
]
