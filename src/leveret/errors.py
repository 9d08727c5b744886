"""Every error that Leveret raises on purpose.

    LeveretError
    ├── EngineError                a command that the engine refuses; it has changed nothing
    │   ├── NotFoundError               the queue, exchange or vhost does not exist
    │   ├── PreconditionFailedError     arguments, limits or state do not allow it
    │   ├── AccessRefusedError          permission, reserved name, exclusive use
    │   ├── ResourceLockedError         the queue belongs to another connection
    │   ├── NotAllowedError             a limit or rule of the whole connection
    │   ├── Stale                  the receipt is of a lease that has ended
    │   ├── Unsupported            valid AMQP that neither RabbitMQ nor Leveret implements
    │   └── InternalError          a request that RabbitMQ answers by an internal error
    ├── ProtocolError              the peer broke the rules of the wire
    │   ├── FrameError             framing: size, end octet, type, undecodable method
    │   ├── FieldSyntaxError            a field that cannot be decoded
    │   ├── CommandInvalidError         a method that makes no sense here
    │   ├── ChannelError           a channel that is not open, or open already
    │   └── UnexpectedFrameError        content where a method was due, or the reverse
    ├── StorageError               the data directory cannot be used
    │   ├── Corrupt                bytes that are not what was written
    │   └── NewerFormatError            written by a later version
    ├── ConfigError                the configuration cannot be used; names every fault
    ├── TokenRefusedError               a token that cannot be trusted, or not any more
    ├── JobsError                  a call that the jobs service cannot serve
    │   ├── JobsInvalidError            a job or a call out of its limits; names item and field
    │   ├── JobsUnavailableError        what keeps the jobs does not answer; names it
    │   ├── JobsDrainingError           the service is stopping
    │   ├── JobsFullError               there is no room for more jobs for now
    │   └── JobsRateLimitError           a namespace asks too often; says when to come back
    ├── BusError                   what the event bus cannot do
    │   ├── NotConnectedError           no broker within the time given
    │   ├── TopologyMismatchError       an exchange or queue exists with other arguments
    │   ├── EncodeError           an event that cannot be written as JSON
    │   ├── DecodeError           a body that is not the event it should be
    │   ├── PermanentError         raised by a handler: trying again is of no use
    │   └── PublishError          a publish that was not confirmed; names its message
    │       ├── Unroutable         no queue takes it
    │       ├── Nacked             the broker refused it
    │       ├── PublishTimeoutError     no confirm in time: it may or may not be there
    │       │   └── PublishBlockedError the broker takes no publishes now: an alarm
    │       ├── PublishClosedError      the connection was lost, or the bus stopped
    │       └── TooLargeError           more bytes than the bus or the broker takes
    ├── ClusterError               a request that a member of a group cannot serve now
    │   ├── NotLeaderError              another node leads, or none; names it
    │   ├── Busy                   not now: a limit, or a change that is under way
    │   ├── UnknownGroupError           no member of this group is hosted here
    │   ├── ChangeRefusedError          a change of the members that makes no sense
    │   └── LinkRefusedError            two nodes that do not take each other; says why
    └── Closed                     the broker or queue was closed under the caller
        └── Refused                another broker refused something, and said why

The explanation is the exception's text and matches RabbitMQ's where clients read it. Codes do not
live here: `leveret.amqp.reply_codes` and `leveret.http.status_codes` map classes to numbers.
"""


class LeveretError(Exception):
    """Base of all errors raised on purpose."""


class EngineError(LeveretError):
    """A command that the engine refuses."""


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
    """The receipt is of a lease that has ended: timed out, or settled before."""


class UnsupportedError(EngineError):
    """Valid AMQP that is not implemented, as in RabbitMQ."""


class InternalError(EngineError):
    """A request that RabbitMQ answers by an internal error."""


class ProtocolError(LeveretError):
    """The peer broke the rules of the wire."""


class FrameError(ProtocolError):
    """Framing: size, end octet, type, or a method that cannot be decoded."""


class FieldSyntaxError(ProtocolError):
    """A field that cannot be decoded."""


class CommandInvalidError(ProtocolError):
    """A method that makes no sense in this place."""


class ChannelError(ProtocolError):
    """A channel that is not open, or is open already."""


class UnexpectedFrameError(ProtocolError):
    """Content where a method was due, or the reverse."""


class StorageError(LeveretError):
    """The data directory cannot be used."""


class CorruptionError(StorageError):
    """Bytes that are not what was written."""


class NewerFormatError(StorageError):
    """Written by a later version."""


class ConfigError(LeveretError):
    """The configuration cannot be used; the text names every fault."""


class TokenRefusedError(LeveretError):
    """A token that cannot be trusted, or not any more; the text says why, and not what it held."""


class JobsError(LeveretError):
    """A call that the jobs service cannot serve."""


class JobsInvalidError(JobsError):
    """A job or a call that breaks a limit or cannot be read."""

    def __init__(self, text: str, field: str = "", item: int | None = None) -> None:
        super().__init__(text)
        self.field = field
        self.item = item  # index of the job in its batch; None where it is no batch


class JobsUnavailableError(JobsError):
    """Redis, a shard or a log does not answer; the text names which."""


class JobsDrainingError(JobsError):
    """The service is stopping and takes nothing more."""


class JobsFullError(JobsError):
    """There is no room for more jobs for now: a limit of the topic, or an alarm of the node."""


class JobsRateLimitError(JobsError):
    """A namespace asks too often."""

    def __init__(self, namespace: str, retry_after_s: float) -> None:
        super().__init__(f"the namespace {namespace} is over its rate")
        self.retry_after_s = retry_after_s


class BusError(LeveretError):
    """What the event bus cannot do."""


class NotConnectedError(BusError):
    """No broker could be reached within the time given; the text says what was tried last."""


class TopologyMismatchError(BusError):
    """An exchange or queue exists with other arguments than the topology says."""


class EncodeError(BusError):
    """An event that cannot be written as JSON."""


class DecodeError(BusError):
    """A body that is not the event which its type says."""


class PermanentError(BusError):
    """Raised by a handler whose message can never be handled."""


class PublishError(BusError):
    """A publish that was not confirmed."""

    def __init__(self, message_id: str, text: str) -> None:
        super().__init__(f"message {message_id}: {text}")
        self.message_id = message_id


class UnroutableError(PublishError):
    """No queue takes the message, and it was published as mandatory."""


class NackedError(PublishError):
    """The broker refused the message: a full queue, or a fault of its own."""


class PublishTimeoutError(PublishError):
    """No confirm in time: the broker may have the message or not."""


class PublishBlockedError(PublishTimeoutError):
    """The broker takes no publishes now, because an alarm is raised."""


class PublishClosedError(PublishError):
    """The connection was lost before the confirm, or the bus was stopped."""


class TooLargeError(PublishError):
    """The body has more bytes than the bus or the broker takes."""


class ClusterError(LeveretError):
    """A request that a member of a group cannot serve now."""


class NotLeaderError(ClusterError):
    """Another node leads the group, or none does."""

    def __init__(self, leader: int) -> None:
        super().__init__(f"node {leader} leads" if leader else "no node leads")
        self.leader = leader  # 0 if none is known


class BusyError(ClusterError):
    """Not now: a limit is reached, or a change is under way."""


class UnknownGroupError(ClusterError):
    """No member of this group is hosted here."""

    def __init__(self, group: int) -> None:
        super().__init__(f"no group {group} here")
        self.group = group


class ChangeRefusedError(ClusterError):
    """A change of the members that makes no sense."""


class LinkRefusedError(ClusterError):
    """A node that does not take another one's connection, by the code of `cluster.hello`."""

    def __init__(self, code: int, reason: str, *, by_peer: bool) -> None:
        super().__init__(reason)
        self.code = code
        self.by_peer = by_peer  # whether the other side has said so


class ClosedError(LeveretError):
    """The broker or queue was closed under the caller."""


class ClosedByPeerError(ClosedError):
    """Another broker closed a channel or connection, by its code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
