"""The sections of the configuration: names, bounds and defaults of their settings.

Docstrings of the sections and their fields are published in docs/configuration.md.
"""

import re
from pathlib import Path
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
from group_sidecar.policies.patterns import GroupPattern
from group_sidecar.policies.policy import WholeNumber, reject_boolean
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
"""Seconds between two rounds of work. A shorter interval would keep the process busy with this work."""
Timeout = Annotated[Number, Field(ge=0), AfterValidator(_never_or_a_second)]
"""Seconds, or 0 for never. A timeout close to 0 would close every connection at once."""
_TOPIC = re.compile(r"(?!\.\.?$)[a-zA-Z0-9._-]{1,249}")
"""A valid topic name (Kafka class ``org.apache.kafka.common.internals.Topic``)."""


AnsweredApi = Literal["ListGroups", "DescribeGroups", "OffsetFetch", "ConsumerGroupDescribe"]


class Section(BaseModel):
    """A mapping inside the configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Gateway(Section):
    """Used where `mode` is `gateway`."""

    advertise: str | None = None
    """The host that clients reach the gateway by. Default: the host of `listen`, unless that is a wildcard."""
    first_port: WholeNumber = Field(default=0, ge=0, le=0xFFFF)
    """Node N gets the port `first_port` + N; with 0 any port that is free."""


if TYPE_CHECKING:
    Policies = Section
else:
    Policies = create_model(
        "Policies",
        __base__=Section,
        __doc__="What may pass.",
        **{policy.name: (policy.Settings | None, None) for policy in POLICIES},
    )


class Answers(Section):
    """Requests that the sidecar answers itself."""

    enabled: bool = True
    """Whether it answers at all, where its copy of the coordinator is certain."""
    apis: tuple[AnsweredApi, ...] = ("ListGroups", "DescribeGroups", "OffsetFetch", "ConsumerGroupDescribe")
    """Which APIs it answers."""
    exclusive: bool = False
    """Your word that no client reaches the broker but through this sidecar, and that a broker which cannot list its
    groups had none when the sidecar started. Without it ListGroups and DescribeGroups are left to the broker, where it
    can answer them: they tell of rebalances under way, which are not in the log."""
    client_host: Literal["client", "broker"] = "client"
    """Where DescribeGroups and ConsumerGroupDescribe say that a member is. `client`: whence its requests come, as far
    as the sidecar has seen any, in the broker's answers too. `broker`: what the broker says, which sees the sidecar in
    place of its clients; until it has said so of a new member, the broker is asked. Page, JSON, log and journal always
    have the client's."""
    authorizer: Literal["auto", "none"] = "auto"
    """`auto`: the broker is asked (DescribeAcls), and while it is not known to have none a client is only shown what
    the broker has lately shown to it. `none`: your word that it has none, for brokers that cannot be asked."""
    rights_seconds: Number = Field(default=30, ge=0)
    """For how long what an authorizer has granted is remembered, and so how long a right that was taken back may still
    be used; not where that passes through this sidecar. With 0 all is left to such a broker."""
    verify: Number = Field(default=0.01, ge=0, le=1)
    """The share of its answers that the sidecar also asks the broker for, to compare them; 0 for none. A group that
    differs is left to the broker until both agree again."""


class Sasl(Section):
    """As whom the sidecar authenticates; the names are Kafka's. Without it, as nobody."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    """One that the listener has enabled."""
    username: str = Field(min_length=1)
    """The user."""
    password: SecretStr | None = None
    """The password; it is never logged."""
    password_file: Path | None = None
    """In place of `password`: a file that holds it. Read whenever it is needed, so that it may change."""

    @model_validator(mode="after")
    def _has_one_password(self) -> Self:
        if (self.password is None) == (self.password_file is None):
            raise ValueError("needs either password or password_file")
        return self


class Tls(Section):
    """TLS to the listener, which must present a certificate that is trusted. Without it, plain. All files are PEM, and
    are read at each connection, so that they may change.
    """

    ca_file: Path | None = None
    """Certificates of the authorities that are trusted. Default: the system's."""
    certificate_file: Path | None = None
    """The sidecar's own certificate with its chain, for listeners that want one (`ssl.client.auth`)."""
    key_file: Path | None = None
    """The key of that certificate, unencrypted. Default: it stands in `certificate_file`."""
    server_name: str | None = Field(default=None, min_length=1)
    """The name that the broker's certificate must bear. Default: the host that is connected to."""

    @model_validator(mode="after")
    def _has_no_key_alone(self) -> Self:
        if self.key_file is not None and self.certificate_file is None:
            raise ValueError("key_file: needs a certificate_file")
        return self


class AdminAccess(Section):
    """Who is let in at the admin port. `/healthz` and `/readyz` answer everybody. A client on this machine is let in,
    but for what came through a proxy, and for a browser that was lured here under another name than `localhost`, an
    address of the loopback or the host of `admin`. Everyone else needs the token, as `Authorization: Bearer TOKEN` or
    as the password of HTTP Basic with any user, or a certificate. What a proxy says of its client
    (`X-Forwarded-For`) lets nobody in. A proxy on this machine that says nothing of a client, not even by passing on
    its `Host`, lets it in.
    """

    open: bool = False
    """Your word that everybody who reaches the port may see the groups, and have the settings read again."""
    metrics: Literal["open", "guarded"] = "open"
    """`guarded`: `/metrics` asks for the same as the groups do. It has their names too, with `metrics.detail` of
    `group` or finer."""
    token: SecretStr | None = None
    """The token; it is never logged. Without `certificate_file` it travels for all to read."""
    token_file: Path | None = None
    """In place of `token`: a file that holds it. Read whenever it is needed, so that it may change."""
    certificate_file: Path | None = None
    """The certificate of the admin port with its chain, in PEM; with it the port speaks TLS only. Read again when it
    has changed."""
    key_file: Path | None = None
    """The key of that certificate, unencrypted. Default: it stands in `certificate_file`."""
    client_ca_file: Path | None = None
    """Certificates of the authorities, in PEM: who has a certificate of theirs needs no token."""

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


class OwnConnection(Section):
    """How the sidecar itself asks the broker. Clients' connections have nothing to do with it."""

    address: ConfiguredAddress | None = None
    """HOST:PORT of another listener of the same broker, for instance the one between brokers. Default: `upstream`.
    A gateway has none: there are many brokers, known by the listener that clients use."""
    sasl: Sasl | None = None
    tls: Tls | None = None

    @field_validator("address")
    @classmethod
    def _has_a_port(cls, address: Address | None) -> Address | None:
        return None if address is None else require_port(address)


class OffsetsLog(Section):
    """The coordinator's log, `__consumer_offsets`, from which its copy is made. To read it, the user of
    `own_connection` needs the operations DESCRIBE and READ on that topic.
    """

    read: bool = True
    """Whether the partitions that the broker leads are read. Without them the sidecar works from what passes by, and by
    asking."""
    load_buffer_size: WholeNumber = Field(default=5_242_880, ge=65_536, le=0x3FFFFFFF)
    """Bytes that are read at a time; more only for a batch that is larger. The broker's `offsets.load.buffer.size`."""


class Limits(Section):
    """Bounds of what is held."""

    largest_frame: WholeNumber = Field(default=104_857_600, ge=1024, le=0x7FFFFFFF)
    """Bytes of a request; a longer one closes its connection. The broker's `socket.request.max.bytes`."""
    inspected_frame: WholeNumber = Field(default=16_777_216, ge=1024, le=0x7FFFFFFF)
    """Bytes of a request or reply that is looked into; a longer one passes unread. A longer request that a policy
    judges closes its connection."""
    inspected_elements: WholeNumber = Field(default=3_000, ge=100)
    """Array elements of a commit that is looked into: topics and partitions together. One with more of them passes
    unread, and its group is in doubt until the log or the broker has told how it is. A commit that a policy judges may
    have seven times as many, a judged join or heartbeat twice as many; with more it closes its connection. Of APIs
    whose elements take more time it is a half, a fifth or a tenth: 1,500 members of a JoinGroup reply, 600 of groups
    that are described or deleted, 300 that leave together. An answer that would take longer to make than such a commit
    is left to the broker. Every other client waits while the sidecar understands a message: by default about 5 ms
    where its modules are compiled."""
    held_frames: WholeNumber = Field(default=268_435_456, ge=1024)
    """Announced bytes of requests, for each broker, that come in pieces and are held until all of each has come; they
    count until the broker has replied. Requests of up to 16 KiB do not count. Where there is no room, the oldest
    request of the client address that has announced most gives way: it passes unread, or closes its connection where a
    policy judges it. A request that comes more slowly than 16 KiB a second for longer than `limits.stalled_seconds`
    gives way, too. A request that has come whole and waits for its reply is forgotten, and its group is in doubt; a
    join, a leave, a KIP-848 heartbeat, a question or a judged request closes its connection then. An eighth of the
    bytes is for clients that have not authenticated. An IPv6 network of 64 bits counts as one address."""
    connections: Positive = 10_000
    """Client connections at a time; further ones are closed at once. Each takes two descriptors: where the system
    allows fewer of these, there are fewer connections."""
    idle_seconds: Timeout = 900
    """Seconds without a byte after which a connection that waits for no reply is closed, at least 1; 0 for never.
    Longer than the ten minutes of the broker's `connections.max.idle.ms`."""
    stalled_seconds: Number = Field(default=30, ge=1)
    """Seconds without a byte after which a connection is closed whose client has sent a part of a request, or has
    closed its side and is still owed a reply. The default of Kafka clients' `request.timeout.ms`."""
    reply_seconds: Timeout = 900
    """Seconds without a byte after which a connection is closed whose client waits for a reply, or does not take what
    it was sent, at least 1; 0 for never. A JoinGroup may wait for its own timeouts and a minute, where that is
    longer."""
    groups: Positive = 100_000
    """Groups that are remembered, with 2,500 bytes of metadata and assignments of their members each on average (at
    least 64 MB in all). A group for whose members there is no more room is described by the broker."""
    offsets: Positive = 5_000_000
    """Committed offsets that are remembered, of what passes by with 50 characters of metadata each on average (at least
    64 MB in all), and of the log with 200 bytes each for long metadata and for members (likewise). Beyond it groups are
    left to the broker, of the log all those of the largest partition."""
    rights: Positive = 200_000
    """Grants of authorizers that are remembered, for each broker: one for each group and topic that a user is shown."""
    remembered_answers: WholeNumber = Field(default=67_108_864, ge=0)
    """Bytes of answers about groups that are kept as they were encoded, with their questions, for each broker; 0 for
    none. One answer may take a quarter of them."""
    flight_recorder: WholeNumber = Field(default=33_554_432, ge=0)
    """Bytes, roughly, of what is kept of each group's past: joins, leaves, rebalances and refusals; 0 for none."""


class Journal(Section):
    """Records of what happened, for the fleet pipeline. They go to a folder, to a topic, or to both."""

    folder: Path | None = None
    """Where segments are written; made where it is missing. Sidecars that share one share its limits."""
    topic: str | None = None
    """The topic that records are written to, on the sidecar's own broker, of Kafka 0.11 or later; a gateway's is the
    one at `upstream`. It must be there, with a partition that this broker leads. The user of `own_connection` needs the
    operations DESCRIBE and WRITE on it, before Kafka 3.0 also IDEMPOTENT_WRITE on the cluster."""
    interval_seconds: Interval = 10
    """Seconds between two restatements of what stands, and between two writes to the folder."""
    segment_bytes: Positive = 8_388_608
    """Bytes after which a segment is closed."""
    segment_seconds: Interval = 10
    """Seconds after which a segment is closed; readers see closed ones only."""
    total_bytes: Positive = Field(default=268_435_456, validate_default=True)
    """Bytes of all segments together, beyond which the oldest are deleted; at least twice `segment_bytes`."""
    retention_seconds: Number = Field(default=604_800, ge=1)
    """Seconds after which a segment is deleted, however few there are."""
    topic_batch_bytes: WholeNumber = Field(default=524_288, ge=1024, le=0x3FFFFFFF)
    """Bytes of a batch before compression. Where the topic's `max.message.bytes` is less, it shrinks by itself."""
    topic_linger_seconds: Number = Field(default=0.5, ge=0)
    """Seconds that records wait for others, to go in one batch."""
    topic_compression: Literal["none", "gzip"] = "gzip"
    """How batches are compressed."""

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
    """What Prometheus is told."""

    detail: Literal["none", "group", "topic", "partition"] = "group"
    """How far series go into detail."""
    allow: tuple[GroupPattern, ...] = ()
    """Regular expressions as Python's `re` has them. Where there are any, only groups whose whole id one of them
    matches have series of their own. In totals all groups count. They are tried on all ids at each scrape: what is said
    of `policies.group_max_size.overrides[].pattern` holds here too."""
    deny: tuple[GroupPattern, ...] = ()
    """The same of groups that have none, even if `allow` matches."""
    series: Positive = 20_000
    """Series of groups, topics and partitions together; beyond it they are left out, and counted."""


class Log(Section):
    """The log on standard error."""

    format: Literal["auto", "console", "json"] = "auto"
    """`auto`: `console` on a terminal, `json` elsewhere."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe level that is written."""
