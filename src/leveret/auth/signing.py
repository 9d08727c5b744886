"""Signs tokens, where this node is the one that gives them out."""

from typing import Any

import jwt

ALGORITHM = "HS256"


def sign_token(claims: dict[str, Any], secret: str) -> str:
    """A JSON Web Token with these claims."""
    return jwt.encode(claims, secret, algorithm=ALGORITHM)
