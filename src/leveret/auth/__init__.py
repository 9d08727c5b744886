"""Logins and permissions.

- `Authenticator`   decides about logins; fronts use it and know nothing else of passwords
- `Credentials`     the input of a login; the result is a `User` or a `Refusal`
- `User`            a logged-in user, with the checks of permissions
- `UserDirectory`   the authenticator of a node, with its `users` and `permissions`
- `Audit`           the audit log
- `JobAccess`       the access of a call to the jobs service
- `Quotas`          limits of connections and channels
"""

from leveret.addresses import is_loopback
from leveret.auth.audit import Audit, AuditEvent
from leveret.auth.authenticator import Authenticator, SingleUserAuthenticator
from leveret.auth.hashes import NO_PASSWORD, PasswordHash, hash_password, read_hash
from leveret.auth.job_access import JobAccess
from leveret.auth.limits import Quotas
from leveret.auth.user import (
    ADMINISTRATOR,
    CONFIGURE,
    MANAGEMENT_TAGS,
    MONITORING,
    READ,
    WRITE,
    Credentials,
    Refusal,
    User,
)
from leveret.auth.user_directory import UserDirectory
from leveret.auth.users import Account, parse_tags

__all__ = [
    "ADMINISTRATOR",
    "CONFIGURE",
    "MANAGEMENT_TAGS",
    "MONITORING",
    "NO_PASSWORD",
    "READ",
    "WRITE",
    "Account",
    "Audit",
    "Authenticator",
    "Credentials",
    "JobAccess",
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
