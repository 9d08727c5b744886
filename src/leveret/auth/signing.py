"""Sign the tokens that this node issues."""

from typing import Any

import jwt

ALGORITHM = "HS256"


def sign_token(claims: dict[str, Any], secret: str) -> str:
    """Return a signed JSON Web Token with these claims."""
    return jwt.encode(claims, secret, algorithm=ALGORITHM)
