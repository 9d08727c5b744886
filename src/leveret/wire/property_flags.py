"""Bits of the property flags in a content header, as AMQP 0-9-1 numbers them (4.2.6.1)."""

from typing import Final

CONTENT_TYPE: Final = 0x8000
CONTENT_ENCODING: Final = 0x4000
HEADERS: Final = 0x2000
DELIVERY_MODE: Final = 0x1000
PRIORITY: Final = 0x0800
CORRELATION_ID: Final = 0x0400
REPLY_TO: Final = 0x0200
EXPIRATION: Final = 0x0100
MESSAGE_ID: Final = 0x0080
TIMESTAMP: Final = 0x0040
TYPE: Final = 0x0020
USER_ID: Final = 0x0010
APP_ID: Final = 0x0008
CLUSTER_ID: Final = 0x0004
CONTINUATION: Final = 0x0001  # another word of flags follows
