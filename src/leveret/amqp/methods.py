"""The numbers of AMQP 0-9-1: header, frame types, methods (class << 16 | method), frame sizes."""

from typing import Final

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"  # the first bytes of a client

FRAME_METHOD: Final = 1
FRAME_HEADER: Final = 2
FRAME_BODY: Final = 3
FRAME_HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE
FRAME_OVERHEAD: Final = 8  # type, channel, size, end octet

# A client that has not logged in may be anybody, so its frames must be small.
FRAME_BYTES_BEFORE_LOGIN: Final = 8192
FRAME_BYTES_MIN: Final = 4096

EXCHANGE_CLASS: Final = 40
QUEUE_CLASS: Final = 50
BASIC_CLASS: Final = 60

# Work of one method other than publish and ack, in the unit of `WORK_MAX`.
DEFINITION_WORK: Final = 20  # methods of exchanges and queues: 11 µs for a new queue
METHOD_WORK: Final = 2  # all others

CONNECTION_START: Final = 10 << 16 | 10
CONNECTION_START_OK: Final = 10 << 16 | 11
CONNECTION_SECURE: Final = 10 << 16 | 20
CONNECTION_SECURE_OK: Final = 10 << 16 | 21
CONNECTION_TUNE: Final = 10 << 16 | 30
CONNECTION_TUNE_OK: Final = 10 << 16 | 31
CONNECTION_OPEN: Final = 10 << 16 | 40
CONNECTION_OPEN_OK: Final = 10 << 16 | 41
CONNECTION_CLOSE: Final = 10 << 16 | 50
CONNECTION_CLOSE_OK: Final = 10 << 16 | 51
CONNECTION_BLOCKED: Final = 10 << 16 | 60
CONNECTION_UNBLOCKED: Final = 10 << 16 | 61
CONNECTION_UPDATE_SECRET: Final = 10 << 16 | 70
CONNECTION_UPDATE_SECRET_OK: Final = 10 << 16 | 71

CHANNEL_OPEN: Final = 20 << 16 | 10
CHANNEL_OPEN_OK: Final = 20 << 16 | 11
CHANNEL_FLOW: Final = 20 << 16 | 20
CHANNEL_FLOW_OK: Final = 20 << 16 | 21
CHANNEL_CLOSE: Final = 20 << 16 | 40
CHANNEL_CLOSE_OK: Final = 20 << 16 | 41

ACCESS_REQUEST: Final = 30 << 16 | 10
ACCESS_REQUEST_OK: Final = 30 << 16 | 11

EXCHANGE_DECLARE: Final = 40 << 16 | 10
EXCHANGE_DECLARE_OK: Final = 40 << 16 | 11
EXCHANGE_DELETE: Final = 40 << 16 | 20
EXCHANGE_DELETE_OK: Final = 40 << 16 | 21
EXCHANGE_BIND: Final = 40 << 16 | 30
EXCHANGE_BIND_OK: Final = 40 << 16 | 31
EXCHANGE_UNBIND: Final = 40 << 16 | 40
EXCHANGE_UNBIND_OK: Final = 40 << 16 | 51

QUEUE_DECLARE: Final = 50 << 16 | 10
QUEUE_DECLARE_OK: Final = 50 << 16 | 11
QUEUE_BIND: Final = 50 << 16 | 20
QUEUE_BIND_OK: Final = 50 << 16 | 21
QUEUE_PURGE: Final = 50 << 16 | 30
QUEUE_PURGE_OK: Final = 50 << 16 | 31
QUEUE_DELETE: Final = 50 << 16 | 40
QUEUE_DELETE_OK: Final = 50 << 16 | 41
QUEUE_UNBIND: Final = 50 << 16 | 50
QUEUE_UNBIND_OK: Final = 50 << 16 | 51

BASIC_QOS: Final = 60 << 16 | 10
BASIC_QOS_OK: Final = 60 << 16 | 11
BASIC_CONSUME: Final = 60 << 16 | 20
BASIC_CONSUME_OK: Final = 60 << 16 | 21
BASIC_CANCEL: Final = 60 << 16 | 30
BASIC_CANCEL_OK: Final = 60 << 16 | 31
BASIC_PUBLISH: Final = 60 << 16 | 40
BASIC_RETURN: Final = 60 << 16 | 50
BASIC_DELIVER: Final = 60 << 16 | 60
BASIC_GET: Final = 60 << 16 | 70
BASIC_GET_OK: Final = 60 << 16 | 71
BASIC_GET_EMPTY: Final = 60 << 16 | 72
BASIC_ACK: Final = 60 << 16 | 80
BASIC_REJECT: Final = 60 << 16 | 90
BASIC_RECOVER_ASYNC: Final = 60 << 16 | 100
BASIC_RECOVER: Final = 60 << 16 | 110
BASIC_RECOVER_OK: Final = 60 << 16 | 111
BASIC_NACK: Final = 60 << 16 | 120

CONFIRM_SELECT: Final = 85 << 16 | 10
CONFIRM_SELECT_OK: Final = 85 << 16 | 11

TX_SELECT: Final = 90 << 16 | 10
TX_SELECT_OK: Final = 90 << 16 | 11
TX_COMMIT: Final = 90 << 16 | 20
TX_COMMIT_OK: Final = 90 << 16 | 21
TX_ROLLBACK: Final = 90 << 16 | 30
TX_ROLLBACK_OK: Final = 90 << 16 | 31

# Methods that AMQP defines but a client must not send on an open channel.
OTHER_METHODS: Final = frozenset(
    (
        CONNECTION_START,
        CONNECTION_START_OK,
        CONNECTION_SECURE,
        CONNECTION_SECURE_OK,
        CONNECTION_TUNE,
        CONNECTION_TUNE_OK,
        CONNECTION_OPEN,
        CONNECTION_OPEN_OK,
        CONNECTION_CLOSE,
        CONNECTION_CLOSE_OK,
        CONNECTION_BLOCKED,
        CONNECTION_UNBLOCKED,
        CONNECTION_UPDATE_SECRET,
        CONNECTION_UPDATE_SECRET_OK,
        CHANNEL_OPEN_OK,
        CHANNEL_FLOW_OK,
        CHANNEL_CLOSE_OK,
        ACCESS_REQUEST_OK,
        EXCHANGE_DECLARE_OK,
        EXCHANGE_DELETE_OK,
        EXCHANGE_BIND_OK,
        EXCHANGE_UNBIND_OK,
        QUEUE_DECLARE_OK,
        QUEUE_BIND_OK,
        QUEUE_PURGE_OK,
        QUEUE_DELETE_OK,
        QUEUE_UNBIND_OK,
        BASIC_QOS_OK,
        BASIC_CONSUME_OK,
        BASIC_RETURN,
        BASIC_DELIVER,
        BASIC_GET_OK,
        BASIC_GET_EMPTY,
        BASIC_RECOVER_OK,
        CONFIRM_SELECT_OK,
        TX_SELECT_OK,
        TX_COMMIT_OK,
        TX_ROLLBACK_OK,
    )
)
