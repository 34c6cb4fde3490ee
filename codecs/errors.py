"""The exceptions of decoding, and Kafka's error codes by name."""

from enum import IntEnum


class DecodeError(Exception):
    """The bytes do not match the schema of their API and version.

    Attributes:
        what: the message, for instance ``JoinGroupRequest v9``.
        path: dotted path of the field at which decoding stopped; empty for the message itself.
        reason: one clause for a log line.
    """

    def __init__(self, what: str, path: str, reason: str) -> None:
        super().__init__(f"{what}: {path + ': ' if path else ''}{reason}")
        self.what = what
        self.path = path
        self.reason = reason


class TooManyElements(DecodeError):
    """The message has more elements than the caller allows, or is too long for the slow reader that it needs.

    An unusual value, such as a string that is not UTF-8, can be decoded only by `layouts.Layout`, which is slow. So
    a message with such a value may have at most `schema.MAX_LAYOUT_BYTES` bytes.
    """


class ErrorCode(IntEnum):
    """The error codes on the wire that this project uses (Kafka class ``Errors``)."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_PRODUCER_ID_MAPPING = 49
    SECURITY_DISABLED = 54
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    GROUP_MAX_SIZE_REACHED_KIP_389 = 77
    """The number of GROUP_MAX_SIZE_REACHED in the text of KIP-389. Released Kafka uses 77 for STALE_BROKER_EPOCH."""
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    FENCED_MEMBER_EPOCH = 110
    STALE_MEMBER_EPOCH = 113
    REBOOTSTRAP_REQUIRED = 129
    GROUP_DELETION_FAILED = 134
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135
    CONTROLLER_ID_NOT_REGISTERED = 136


NONE = int(ErrorCode.NONE)
"""NONE as an int, for code that runs with every request. Python 3.11 is slow to look up and compare enum members."""
