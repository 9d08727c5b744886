"""Every error that Leveret raises on purpose.

    LeveretError
    ├── EngineError                a command that the engine refuses; it has changed nothing
    │   ├── NotFound               the queue, exchange or vhost does not exist
    │   ├── PreconditionFailed     arguments, limits or state do not allow it
    │   ├── AccessRefused          permission, reserved name, exclusive use
    │   ├── ResourceLocked         the queue belongs to another connection
    │   ├── NotAllowed             a limit or rule of the whole connection
    │   ├── Stale                  the receipt is of a lease that has ended
    │   ├── Unsupported            valid AMQP that neither RabbitMQ nor Leveret implements
    │   └── InternalError          a request that RabbitMQ answers by an internal error
    ├── ProtocolError              the peer broke the rules of the wire
    │   ├── FrameError             framing: size, end octet, type, undecodable method
    │   ├── SyntaxFault            a field that cannot be decoded
    │   ├── CommandInvalid         a method that makes no sense here
    │   ├── ChannelFault           a channel that is not open, or open already
    │   └── UnexpectedFrame        content where a method was due, or the reverse
    ├── StorageError               the data directory cannot be used
    │   ├── Corrupt                bytes that are not what was written
    │   └── NewerFormat            written by a later version
    ├── ConfigError                the configuration cannot be used; names every fault
    ├── TokenRefused               a token that cannot be trusted, or not any more
    ├── JobsError                  a call that the jobs service cannot serve
    │   ├── JobsInvalid            a job or a call out of its limits; names item and field
    │   ├── JobsUnavailable        what keeps the jobs does not answer; names it
    │   ├── JobsDraining           the service is stopping
    │   ├── JobsFull               there is no room for more jobs for now
    │   └── JobsOverRate           a namespace asks too often; says when to come back
    ├── BusError                   what the event bus cannot do
    │   ├── NotConnected           no broker within the time given
    │   ├── TopologyMismatch       an exchange or queue exists with other arguments
    │   ├── NotEncodable           an event that cannot be written as JSON
    │   ├── NotDecodable           a body that is not the event it should be
    │   ├── PermanentFault         raised by a handler: trying again is of no use
    │   └── PublishFailed          a publish that was not confirmed; names its message
    │       ├── Unroutable         no queue takes it
    │       ├── Nacked             the broker refused it
    │       ├── PublishTimeout     no confirm in time: it may or may not be there
    │       │   └── PublishBlocked the broker takes no publishes now: an alarm
    │       ├── PublishClosed      the connection was lost, or the bus stopped
    │       └── TooLarge           more bytes than the bus or the broker takes
    ├── ClusterError               a request that a member of a group cannot serve now
    │   ├── NotLeader              another node leads, or none; names it
    │   ├── Busy                   not now: a limit, or a change that is under way
    │   ├── UnknownGroup           no member of this group is hosted here
    │   ├── ChangeRefused          a change of the members that makes no sense
    │   └── LinkRefused            two nodes that do not take each other; says why
    └── Closed                     the broker or queue was closed under the caller
        └── Refused                another broker refused something, and said why

The explanation is the exception's text and matches RabbitMQ's where clients read it. Codes do not
live here: `leveret.amqp.reply_codes` and `leveret.http.status_codes` map classes to numbers.
"""


class LeveretError(Exception):
    """Base of all errors raised on purpose."""


class EngineError(LeveretError):
    """A command that the engine refuses."""


class NotFound(EngineError):
    """The queue, exchange or vhost does not exist."""


class PreconditionFailed(EngineError):
    """Arguments, limits or state do not allow the command."""


class AccessRefused(EngineError):
    """Permission, reserved name, or exclusive use by another consumer."""


class ResourceLocked(EngineError):
    """The queue belongs to another connection."""


class NotAllowed(EngineError):
    """A limit or rule of the whole connection is broken."""


class Stale(EngineError):
    """The receipt is of a lease that has ended: timed out, or settled before."""


class Unsupported(EngineError):
    """Valid AMQP that is not implemented, as in RabbitMQ."""


class InternalError(EngineError):
    """A request that RabbitMQ answers by an internal error."""


class ProtocolError(LeveretError):
    """The peer broke the rules of the wire."""


class FrameError(ProtocolError):
    """Framing: size, end octet, type, or a method that cannot be decoded."""


class SyntaxFault(ProtocolError):
    """A field that cannot be decoded."""


class CommandInvalid(ProtocolError):
    """A method that makes no sense in this place."""


class ChannelFault(ProtocolError):
    """A channel that is not open, or is open already."""


class UnexpectedFrame(ProtocolError):
    """Content where a method was due, or the reverse."""


class StorageError(LeveretError):
    """The data directory cannot be used."""


class Corrupt(StorageError):
    """Bytes that are not what was written."""


class NewerFormat(StorageError):
    """Written by a later version."""


class ConfigError(LeveretError):
    """The configuration cannot be used; the text names every fault."""


class TokenRefused(LeveretError):
    """A token that cannot be trusted, or not any more; the text says why, and not what it held."""


class JobsError(LeveretError):
    """A call that the jobs service cannot serve."""


class JobsInvalid(JobsError):
    """A job or a call that breaks a limit or cannot be read."""

    def __init__(self, text: str, field: str = "", item: int | None = None) -> None:
        super().__init__(text)
        self.field = field
        self.item = item  # index of the job in its batch; None where it is no batch


class JobsUnavailable(JobsError):
    """Redis, a shard or a log does not answer; the text names which."""


class JobsDraining(JobsError):
    """The service is stopping and takes nothing more."""


class JobsFull(JobsError):
    """There is no room for more jobs for now: a limit of the topic, or an alarm of the node."""


class JobsOverRate(JobsError):
    """A namespace asks too often."""

    def __init__(self, namespace: str, retry_after_s: float) -> None:
        super().__init__(f"the namespace {namespace} is over its rate")
        self.retry_after_s = retry_after_s


class BusError(LeveretError):
    """What the event bus cannot do."""


class NotConnected(BusError):
    """No broker could be reached within the time given; the text says what was tried last."""


class TopologyMismatch(BusError):
    """An exchange or queue exists with other arguments than the topology says."""


class NotEncodable(BusError):
    """An event that cannot be written as JSON."""


class NotDecodable(BusError):
    """A body that is not the event which its type says."""


class PermanentFault(BusError):
    """Raised by a handler whose message can never be handled."""


class PublishFailed(BusError):
    """A publish that was not confirmed."""

    def __init__(self, message_id: str, text: str) -> None:
        super().__init__(f"message {message_id}: {text}")
        self.message_id = message_id


class Unroutable(PublishFailed):
    """No queue takes the message, and it was published as mandatory."""


class Nacked(PublishFailed):
    """The broker refused the message: a full queue, or a fault of its own."""


class PublishTimeout(PublishFailed):
    """No confirm in time: the broker may have the message or not."""


class PublishBlocked(PublishTimeout):
    """The broker takes no publishes now, because an alarm is raised."""


class PublishClosed(PublishFailed):
    """The connection was lost before the confirm, or the bus was stopped."""


class TooLarge(PublishFailed):
    """The body has more bytes than the bus or the broker takes."""


class ClusterError(LeveretError):
    """A request that a member of a group cannot serve now."""


class NotLeader(ClusterError):
    """Another node leads the group, or none does."""

    def __init__(self, leader: int) -> None:
        super().__init__(f"node {leader} leads" if leader else "no node leads")
        self.leader = leader  # 0 if none is known


class Busy(ClusterError):
    """Not now: a limit is reached, or a change is under way."""


class UnknownGroup(ClusterError):
    """No member of this group is hosted here."""

    def __init__(self, group: int) -> None:
        super().__init__(f"no group {group} here")
        self.group = group


class ChangeRefused(ClusterError):
    """A change of the members that makes no sense."""


class LinkRefused(ClusterError):
    """A node that does not take another one's connection, by the code of `cluster.hello`."""

    def __init__(self, code: int, reason: str, *, by_peer: bool) -> None:
        super().__init__(reason)
        self.code = code
        self.by_peer = by_peer  # whether the other side has said so


class Closed(LeveretError):
    """The broker or queue was closed under the caller."""


class Refused(Closed):
    """Another broker closed a channel or connection, by its code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
