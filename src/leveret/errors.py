"""The errors that several parts of Leveret raise.

Every error that a user can catch is a `LeveretError`. An error that only one part raises is beside
the code that raises it. The end of the tree names the most important of these.

    LeveretError
    ├── EngineError                     the engine refuses a command, which has changed nothing
    │   ├── NotFoundError               the queue, exchange or vhost does not exist
    │   ├── PreconditionFailedError     arguments, limits or state do not allow the command
    │   │   ├── LeaseBusyError          leveret.leases: another call uses the lease
    │   │   └── TaskLimitError          leveret.tasks: too many tasks are running
    │   ├── AccessRefusedError          permission, reserved name, exclusive use
    │   ├── ResourceLockedError         the queue belongs to another connection
    │   ├── NotAllowedError             a limit or rule of the whole connection
    │   ├── StaleReceiptError           the lease of the receipt has ended
    │   ├── UnsupportedError            valid AMQP that neither RabbitMQ nor Leveret implements
    │   └── InternalError               a request that RabbitMQ answers with an internal error
    ├── ProtocolError                   the peer broke the rules of AMQP
    │   ├── FrameError                  size, end octet or type of a frame, undecodable method
    │   ├── FieldSyntaxError            a field that cannot be decoded
    │   ├── CommandInvalidError         a method that is not allowed here
    │   ├── ChannelError                the channel is not open, or is open already
    │   └── UnexpectedFrameError        content instead of a method, or the reverse
    ├── StorageError                    the data directory cannot be used
    │   ├── CorruptionError             bytes on disk differ from the bytes that were written
    │   ├── LeadLostError               another node of the cluster leads now
    │   └── NewerFormatError            written by a later version
    ├── ConfigError                     the configuration cannot be used; names every fault
    ├── TokenRefusedError               a token is invalid or has expired
    ├── ClosedError                     the broker or queue was closed during the call
    │   └── ClosedByPeerError           another broker closed the channel or connection
    ├── JobsError                       the jobs service cannot serve a call
    │   ├── JobsInvalidError            a job or call breaks a limit; names item and field
    │   ├── JobsUnavailableError        Redis, a shard or a log does not answer; names it
    │   ├── JobsDrainingError           the service is stopping
    │   ├── JobsFullError               there is no room for more jobs now
    │   └── JobsRateLimitError          a namespace asks too often; says when to retry
    ├── BusError                        leveret.bus.errors: the event bus
    ├── ClusterError                    leveret.cluster.errors: groups of nodes
    ├── CallError                       leveret.http_client.errors: HTTP calls; jobs clients
    ├── RetryError, DeadError           leveret.jobs: raised by handlers of a worker
    └── OptionError, BrokerError, DataLostError     pyspark_leveret.errors: queries in Spark

The text of an error explains it, and matches RabbitMQ's text where clients read it. Errors carry no
codes: `leveret.amqp.reply_codes` and `leveret.http.framework.responses` map classes to numbers.
"""

import os
import re
from typing import Final

_ERRNO: Final = re.compile(r"\[Errno (\d+)\]")


class LeveretError(Exception):
    """Base of all errors that a user can catch."""


class EngineError(LeveretError):
    """The engine refuses a command, which has changed nothing."""


class NotFoundError(EngineError):
    """The queue, exchange or vhost does not exist."""


class PreconditionFailedError(EngineError):
    """Arguments, limits or state do not allow the command."""


class AccessRefusedError(EngineError):
    """Permission, reserved name, or exclusive use by another consumer."""


class ResourceLockedError(EngineError):
    """The queue belongs to another connection."""


class NotAllowedError(EngineError):
    """A limit or rule of the whole connection is broken."""


class StaleReceiptError(EngineError):
    """The lease of the receipt has ended: it timed out or was settled."""


class UnsupportedError(EngineError):
    """Valid AMQP that is not implemented, as in RabbitMQ."""


class InternalError(EngineError):
    """A request that RabbitMQ answers with an internal error."""


class ProtocolError(LeveretError):
    """The peer broke the rules of AMQP."""


class FrameError(ProtocolError):
    """Size, end octet or type of a frame is wrong, or a method cannot be decoded."""


class FieldSyntaxError(ProtocolError):
    """A field that cannot be decoded."""


class CommandInvalidError(ProtocolError):
    """A method that is not allowed here."""


class ChannelError(ProtocolError):
    """The channel is not open, or is open already."""


class UnexpectedFrameError(ProtocolError):
    """Content instead of a method, or the reverse."""


class StorageError(LeveretError):
    """The data directory cannot be used."""


class CorruptionError(StorageError):
    """Bytes on disk differ from the bytes that were written."""


class LeadLostError(StorageError):
    """Another node of the cluster leads now. Whether the last changes were made is not known."""


class NewerFormatError(StorageError):
    """The data directory was written by a later version."""


class ConfigError(LeveretError):
    """The configuration cannot be used; the text names every fault."""


class TokenRefusedError(LeveretError):
    """A token is invalid or has expired. The text says why, and shows nothing of the token."""


class JobsError(LeveretError):
    """The jobs service cannot serve a call."""


class JobsInvalidError(JobsError):
    """A job or call breaks a limit or cannot be decoded."""

    def __init__(self, text: str, field: str = "", item: int | None = None) -> None:
        super().__init__(text)
        self.field = field
        self.item = item  # index of the job in its batch; None if there is no batch


class JobsUnavailableError(JobsError):
    """Redis, a shard or a log does not answer; the text names which.

    Clients get `public_text`, which may lack the address of a server and the cause.
    """

    def __init__(self, text: str, public_text: str = "") -> None:
        super().__init__(text)
        self.public_text = public_text or text


class JobsDrainingError(JobsError):
    """The service is stopping and takes no more calls."""


class JobsFullError(JobsError):
    """There is no room for more jobs now: a limit of the topic, or an alarm of the node."""


class JobsRateLimitError(JobsError):
    """A namespace asks too often."""

    def __init__(self, namespace: str, retry_after_s: float) -> None:
        super().__init__(f"the namespace {namespace} is over its rate")
        self.retry_after_s = retry_after_s


class ClosedError(LeveretError):
    """The broker or queue was closed during the call."""


class ClosedByPeerError(ClosedError):
    """Another broker closed the channel or connection, with this AMQP reply code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def system_reason(fault: Exception) -> str:
    """Return the text of an error without the number of the system.

    asyncio replaces the text where a connection is refused, and joins the errors of several
    addresses of a host to one without a number.
    """
    if not isinstance(fault, OSError):
        return str(fault) or type(fault).__name__
    if fault.filename is not None:
        return f"{os.fsdecode(fault.filename)}: {fault.strerror}"
    if isinstance(fault, ConnectionError) and fault.errno:
        return os.strerror(fault.errno)
    if fault.errno is None and (found := _ERRNO.search(str(fault))) is not None:
        return os.strerror(int(found[1]))
    if isinstance(fault, TimeoutError) and not fault.errno:
        return str(fault) or "no answer in time"
    return fault.strerror or str(fault) or type(fault).__name__


def public_reason(fault: BaseException) -> str:
    """Return the text of an error for clients: without the name of a file."""
    if isinstance(fault, OSError) and fault.strerror:
        return fault.strerror
    text = str(fault)
    return text if text and os.sep not in text else type(fault).__name__
