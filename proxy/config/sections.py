"""The sections of the configuration: names, bounds and defaults of their settings.

Docstrings of the sections and their fields are published in docs/configuration.md.
"""

import re
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_settings import NoDecode

from group_sidecar.policies.all_policies import POLICIES
from group_sidecar.policies.patterns import RegularExpression
from group_sidecar.policies.policy import WholeNumber, reject_boolean
from group_sidecar.proxy.config.paths import ConfiguredPath
from group_sidecar.proxy.runtime.addresses import Address, parse_address


def _address(value: object) -> Address:
    if isinstance(value, Address):
        return value
    if not isinstance(value, str):
        raise ValueError("must be HOST:PORT, for instance 127.0.0.1:9092")
    return parse_address(value)


def require_port(address: Address) -> Address:
    """Returns the address. Raises ValueError if its port is 0, because the system would then choose a port."""
    if address.port == 0:
        raise ValueError("the port must be at least 1")
    return address


def _never_or_a_second(seconds: float) -> float:
    if 0 < seconds < 1:
        raise ValueError("must be 0 or at least 1")
    return seconds


ConfiguredAddress = Annotated[Address, BeforeValidator(_address), NoDecode]
Positive = Annotated[WholeNumber, Field(ge=1)]
Number = Annotated[float, reject_boolean("a number")]
Interval = Annotated[Number, Field(ge=0.1)]
"""Seconds between two rounds of work, at least 0.1. Shorter intervals would keep the process busy with this work."""
Timeout = Annotated[Number, Field(ge=0), AfterValidator(_never_or_a_second)]
"""Seconds, or 0 for never. A timeout close to 0 would close every connection at once."""
_TOPIC = re.compile(r"(?!\.\.?$)[a-zA-Z0-9._-]{1,249}")
"""A valid topic name (Kafka class ``org.apache.kafka.common.internals.Topic``)."""


AnsweredApi = Literal["ListGroups", "DescribeGroups", "OffsetFetch", "ConsumerGroupDescribe"]


class Section(BaseModel):
    """A mapping inside the configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True)


if TYPE_CHECKING:
    Policies = Section
else:
    Policies = create_model(
        "Policies",
        __base__=Section,
        __doc__="The policies, which decide which requests the sidecar refuses.",
        **{policy.name: (policy.Settings | None, None) for policy in POLICIES},
    )


class Answers(Section):
    """Which questions about groups the sidecar answers itself."""

    enabled: bool = True
    """Whether the sidecar answers requests itself when its copy of the coordinator is certain. If false, all questions
    about groups are left to the broker."""
    apis: tuple[AnsweredApi, ...] = ("ListGroups", "DescribeGroups", "OffsetFetch", "ConsumerGroupDescribe")
    """The APIs that the sidecar answers itself."""
    exclusive: bool = False
    """Set to true only if clients reach the broker only through this sidecar. A broker that cannot list its groups must
    also have had no groups when the sidecar started. If false, the sidecar leaves ListGroups and DescribeGroups of
    classic groups to a broker that can answer them. The reason is that their replies show rebalances in progress, which
    are not in the log. If the sidecar does not read the log, it leaves OffsetFetch to the broker too."""
    client_host: Literal["client", "broker"] = "client"
    """Which host DescribeGroups and ConsumerGroupDescribe report for a member. `client`: the host from which the
    member's requests come, if the sidecar has seen one. This host also replaces the host in the broker's replies, for
    the APIs that the sidecar may answer itself. `broker`: the host that the broker reports, which is the sidecar's host
    for every client. Until the broker has reported a host for a new member, the sidecar leaves the request to the
    broker. The page, the JSON, the log and the journal always contain the client's host."""
    authorizer: Literal["auto", "none"] = "auto"
    """Whether the broker has an authorizer. `auto`: the sidecar asks the broker (DescribeAcls). If the broker may have
    an authorizer, the sidecar shows a client only the groups and topics that the broker has recently shown to this
    client. `none`: the broker has no authorizer. Set `none` only if this is true and the sidecar cannot ask the
    broker."""
    rights_seconds: Number = Field(default=30, ge=0)
    """How many seconds a grant of an authorizer is remembered. A revoked right may still be used for that long, unless
    the revocation passed through this sidecar. With 0, no grant is remembered, and a broker that may have an authorizer
    answers all questions."""
    verify: Number = Field(default=0.01, ge=0, le=1)
    """The share of the sidecar's answers that are verified: the sidecar asks the broker the same question and compares
    both answers. 1 verifies all answers, 0 none. A group that differs is left to the broker until both answers have
    agreed twice in a row."""


class AdminAccess(Section):
    """Which clients may use the admin port. The health endpoints answer everybody. A client on this machine has access,
    with two exceptions: its request came through a proxy, or its `Host` is neither `localhost` nor a loopback address
    nor the host of `admin`. The check of `Host` blocks foreign pages in a local browser (DNS rebinding). All other
    clients need the token or a certificate. They send the token as `Authorization: Bearer TOKEN`, or as the password of
    HTTP Basic with any user. The sidecar does not use the client's address in a proxy's header (`X-Forwarded-For`). If
    a proxy on this machine adds no such header and does not pass on the clients' `Host`, all its clients have
    access.
    """

    open: bool = False
    """Gives every client access. Set to true only if everybody who can reach the port may see the groups and make the
    sidecar read its settings again."""
    metrics: Literal["open", "guarded"] = "open"
    """`open`: `/metrics` answers everybody. `guarded`: `/metrics` needs the same access as the groups. The metrics
    contain the groups' names if `metrics.detail` is `group` or finer."""
    token: SecretStr | None = None
    """The token. It is never logged. Without `certificate_file`, the token crosses the network unencrypted."""
    token_file: ConfiguredPath | None = None
    """In place of `token`: a file that contains the token. The file is read whenever a client sends a token, so the
    token may change while the sidecar runs."""
    wrong_tokens_per_minute: Positive = 60
    """How many wrong tokens per minute one client address may send. Up to ten may come at once. If more come, the
    sidecar refuses all tokens from this address for some time (status 429 with `Retry-After`). Tokens from other
    addresses are not affected. All addresses of an IPv6 network of 64 bits count as one. The clients of a proxy share
    its address."""
    certificate_file: ConfiguredPath | None = None
    """The certificate of the admin port with its chain, in PEM. If it is set, the port speaks TLS only. The file is
    read again when it has changed."""
    key_file: ConfiguredPath | None = None
    """The unencrypted private key of `certificate_file`. Default: the key is in `certificate_file`."""
    client_ca_file: ConfiguredPath | None = None
    """Certificates of authorities, in PEM. A client with a certificate from one of these authorities needs no token."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.token is not None and self.token_file is not None:
            raise ValueError("has both token and token_file")
        if self.token is not None and not self.token.get_secret_value().strip():
            raise ValueError("token: is empty")
        for name in ("key_file", "client_ca_file"):
            if getattr(self, name) is not None and self.certificate_file is None:
                raise ValueError(f"{name}: needs a certificate_file")
        return self


class OffsetsLog(Section):
    """The coordinator's log, the topic `__consumer_offsets`, from which the sidecar makes its copy. To read the topic,
    the user of `own_connection` needs the operations DESCRIBE and READ on it.
    """

    read: bool = True
    """Whether the sidecar reads the partitions that the broker leads. If false, the sidecar makes its copy from passing
    requests and from the broker's answers to its own questions."""
    load_buffer_size: WholeNumber = Field(default=5_242_880, ge=65_536, le=0x3FFFFFFF)
    """How many bytes of a partition are read at a time. A single larger batch is read whole, and the log warns about
    it. The broker's setting is `offsets.load.buffer.size`."""


class Journal(Section):
    """Records of events and of the current state, for the fleet pipeline. They are written to a folder, to a topic, or
    to both.
    """

    folder: ConfiguredPath | None = None
    """The folder to which segments are written. It is created if it is missing. If several sidecars share a folder,
    `total_bytes` and `retention_seconds` hold for the segments of all of them."""
    topic: str | None = None
    """The topic that records are written to. It is on the sidecar's own broker, or for a gateway on the broker at
    `upstream`. The broker must be Kafka 0.11 or later. The topic must exist, with a partition that this broker leads.
    The user of `own_connection` needs the operations DESCRIBE and WRITE on the topic, and before Kafka 3.0 also
    IDEMPOTENT_WRITE on the cluster."""
    contract_version: WholeNumber = Field(default=1, ge=1, le=2)
    """The version of the record contract. 1 writes each record on a line of its own. 2 writes up to 500 records of a
    snapshot on one line, which takes about a quarter of the bytes before compression. Upgrade the Spark job before you
    set 2."""
    interval_seconds: Interval = 10
    """Seconds between two snapshots of the current state, and between two writes to the folder."""
    segment_bytes: Positive = 8_388_608
    """The maximum number of bytes of a segment. A segment is closed before it exceeds this size. A single longer line
    gets its own segment."""
    segment_seconds: Interval = 10
    """The age in seconds at which a segment is closed, checked at each write to the folder. Readers see closed segments
    only."""
    total_bytes: Positive = Field(default=268_435_456, validate_default=True)
    """The maximum number of bytes of all segments together, including the open one. Beyond it, the oldest segments are
    deleted. At least twice `segment_bytes`."""
    retention_seconds: Number = Field(default=604_800, ge=1)
    """Seconds after its last write until a closed segment is deleted, even if `total_bytes` is not reached."""
    topic_batch_bytes: WholeNumber = Field(default=524_288, ge=1024, le=0x3FFFFFFF)
    """The maximum number of bytes of a batch before compression. If the broker refuses a batch as too large (the
    topic's `max.message.bytes`), the sidecar makes smaller batches by itself."""
    topic_linger_seconds: Number = Field(default=0.5, ge=0)
    """The maximum number of seconds that a record waits for other records, to be sent in the same batch."""
    topic_compression: Literal["none", "gzip"] = "gzip"
    """The compression of batches."""

    @field_validator("topic")
    @classmethod
    def _is_a_topic(cls, topic: str | None) -> str | None:
        if topic is not None and not _TOPIC.fullmatch(topic):
            raise ValueError("must be the name of a topic: letters, digits, '.', '_' and '-', 249 at most")
        return topic

    @model_validator(mode="after")
    def _goes_somewhere(self) -> Self:
        if self.folder is None and self.topic is None:
            raise ValueError("needs a folder or a topic")
        return self

    @field_validator("total_bytes")
    @classmethod
    def _holds_two(cls, total: int, info: ValidationInfo) -> int:
        if total < 2 * info.data.get("segment_bytes", 0):
            raise ValueError("must be at least twice segment_bytes")
        return total


class Metrics(Section):
    """Which series Prometheus gets at `/metrics`."""

    detail: Literal["none", "group", "topic", "partition"] = "group"
    """The finest level of series. Each level includes the previous ones: `none` has totals only, and `group`, `topic`
    and `partition` add series of each group, topic and partition."""
    allow: tuple[RegularExpression, ...] = ()
    """Regular expressions in the syntax of Python's `re`. If there are any, only groups whose whole id matches one of
    them have series of their own. Totals count all groups. The expressions are matched against all group ids at each
    scrape, so the warning at `policies.group_max_size.overrides[].pattern` applies here too."""
    deny: tuple[RegularExpression, ...] = ()
    """Regular expressions as in `allow`. A group whose whole id matches one of them has no series of its own, even if
    `allow` matches."""
    series: Positive = 20_000
    """The maximum number of series of groups, topics and partitions together. Further series are left out and counted
    in `group_sidecar_series_suppressed`. The finest levels are left out first."""


class Log(Section):
    """The log on standard error."""

    format: Literal["auto", "console", "json"] = "auto"
    """`auto`: `console` if standard error is a terminal, otherwise `json`."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe level that is written."""
