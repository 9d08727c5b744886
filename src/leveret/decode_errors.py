"""The errors by which msgspec refuses bytes that a peer or a file has."""

from typing import Final

import msgspec

# Wrong syntax or type, bytes that are not UTF-8, and nesting that is too deep.
DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
