"""Who may connect, and what they may do.

- `Authority`   decides over logins; fronts ask it and know nothing else of credentials
- `User`        who logged in, and what they may do
"""

from leveret.auth.authority import CONFIGURE, READ, WRITE, Authority, FixedAuthority, User

__all__ = ["CONFIGURE", "READ", "WRITE", "Authority", "FixedAuthority", "User"]
