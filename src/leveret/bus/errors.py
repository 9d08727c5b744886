"""Errors of the event bus.

LeveretError
└── BusError                        the event bus cannot do what was asked
    ├── NotConnectedError           no broker could be reached in time
    │   └── LoginRefusedError       the user, the password or the vhost is wrong
    ├── TopologyMismatchError       an exchange or queue exists with other arguments
    ├── EncodeError                 an event cannot be written as JSON
    ├── DecodeError                 a body is not the event that its type names
    ├── PermanentError              raised by a handler: a retry cannot help
    ├── HandlerTimeoutError         a handler did not end within its time limit
    ├── AlreadyHandledError         another process has handled the message meanwhile
    └── PublishError                a publish was not confirmed; has the message id
        ├── UnroutableError         no queue takes the message
        ├── NackedError             the broker refused the message
        ├── PublishTimeoutError     no confirm in time; the broker may have the message
        │   └── PublishBlockedError the broker takes no publishes because of an alarm
        ├── PublishClosedError      the connection was lost, or the bus was stopped
        │   └── PublishRefusedError the broker closed the channel each time it was sent
        └── TooLargeError           the body is larger than the bus or the broker allows
"""

from leveret.errors import LeveretError


class BusError(LeveretError):
    """The event bus cannot do what was asked."""


class NotConnectedError(BusError):
    """No broker could be reached in time; the text names the last failure."""


class LoginRefusedError(NotConnectedError):
    """The broker refused the user, the password or the vhost; a second attempt does not help."""


class TopologyMismatchError(BusError):
    """An exchange or queue exists with other arguments than the topology has."""


class EncodeError(BusError):
    """An event cannot be written as JSON."""


class DecodeError(BusError):
    """A body is not the event that its type names."""


class PermanentError(BusError):
    """Raised by a handler for a message that can never be handled."""


class HandlerTimeoutError(BusError):
    """A handler did not end within its time limit. Its message has failed."""


class AlreadyHandledError(BusError):
    """Another process has handled the message, after the lease of this one had ended."""


class PublishError(BusError):
    """A publish was not confirmed."""

    def __init__(self, message_id: str, text: str) -> None:
        super().__init__(f"message {message_id}: {text}")
        self.message_id = message_id


class UnroutableError(PublishError):
    """No queue takes the message, and it was published as mandatory."""


class NackedError(PublishError):
    """The broker refused the message: a queue is full, or the broker has a fault."""


class PublishTimeoutError(PublishError):
    """No confirm came in time. The broker may have the message or not."""


class PublishBlockedError(PublishTimeoutError):
    """The broker takes no publishes now, because an alarm is raised."""


class PublishClosedError(PublishError):
    """The connection was lost before the confirm, or the bus was stopped."""


class PublishRefusedError(PublishClosedError):
    """The broker closed the channel each time the message was sent.

    The exchange does not exist, or the user may not write to it.
    """


class TooLargeError(PublishError):
    """The body is larger than the bus or the broker allows."""
