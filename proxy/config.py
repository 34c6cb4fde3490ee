"""What an operator can set.

Owns: the names, bounds and defaults of all settings, and where they come from. Must not know: what the settings do,
what a wrong one is called (`config_faults`). Flags go before environment variables, and those before the file.
"""

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from group_sidecar.policies.policy import Policy
from group_sidecar.policies.registry import POLICIES
from group_sidecar.proxy.addresses import Address, parse_address
from group_sidecar.proxy.config_faults import Settings, fault_lines

ENVIRONMENT = "GROUP_SIDECAR__"
WILDCARDS = ("0.0.0.0", "::")


class ConfigError(Exception):
    """Settings that cannot be used. `lines`: one for each fault, for people."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines


def _address(value: object) -> Address:
    if isinstance(value, Address):
        return value
    if not isinstance(value, str):
        raise ValueError("must be HOST:PORT, for instance 127.0.0.1:9092")
    return parse_address(value)


def _with_port(address: Address) -> Address:
    if address.port == 0:
        raise ValueError("the port must be at least 1")
    return address


ConfiguredAddress = Annotated[Address, BeforeValidator(_address), NoDecode]
Positive = Annotated[int, Field(ge=1)]


AnsweredApi = Literal["ListGroups", "DescribeGroups", "OffsetFetch", "ConsumerGroupDescribe"]


class Section(BaseModel):
    """A mapping inside the configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Gateway(Section):
    """Used where `mode` is `gateway`."""

    advertise: str | None = None
    """The host that clients reach the gateway by. Default: the host of `listen`, unless that is a wildcard."""
    first_port: int = Field(default=0, ge=0, le=0xFFFF)
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
    authorizer: Literal["auto", "none"] = "auto"
    """`auto`: the broker is asked (DescribeAcls), and while it is not known to have none a client is only shown what
    the broker has lately shown to it. `none`: your word that it has none, for brokers that cannot be asked."""
    rights_seconds: float = Field(default=30, ge=0)
    """For how long what an authorizer has granted is remembered, and so how long a right that was taken back may still
    be used; not where that passes through this sidecar. With 0 all is left to such a broker."""
    verify: float = Field(default=0.01, ge=0, le=1)
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
        return None if address is None else _with_port(address)


class OffsetsLog(Section):
    """The coordinator's log, `__consumer_offsets`, from which its copy is made. To read it, the user of
    `own_connection` needs the operations DESCRIBE and READ on that topic.
    """

    read: bool = True
    """Whether the partitions that the broker leads are read. Without them the sidecar works from what passes by, and by
    asking."""
    load_buffer_size: int = Field(default=5_242_880, ge=65_536, le=0x3FFFFFFF)
    """Bytes that are read at a time; more only for a batch that is larger. The broker's `offsets.load.buffer.size`."""


class Limits(Section):
    """Bounds of what is held."""

    largest_frame: int = Field(default=104_857_600, ge=1024, le=0x7FFFFFFF)
    """Bytes of a request; a longer one closes its connection. The broker's `socket.request.max.bytes`."""
    inspected_frame: int = Field(default=16_777_216, ge=1024, le=0x7FFFFFFF)
    """Bytes of a request or reply that is looked into; a longer one passes unread."""
    connections: Positive = 10_000
    """Client connections at a time; further ones are closed at once."""
    idle_seconds: float = Field(default=900, ge=0)
    """Seconds without a byte after which a connection that waits for no reply is closed; 0 for never. Longer than the
    ten minutes of the broker's `connections.max.idle.ms`."""
    groups: Positive = 100_000
    """Groups that are remembered."""
    offsets: Positive = 5_000_000
    """Committed offsets that are remembered."""
    rights: Positive = 200_000
    """Grants of authorizers that are remembered, for each broker: one for each group and topic that a user is shown."""
    remembered_answers: int = Field(default=67_108_864, ge=0)
    """Bytes of answers about groups that are kept as they were encoded, with their questions, for each broker; 0 for
    none. One answer may take a quarter of them."""
    flight_recorder: int = Field(default=33_554_432, ge=0)
    """Bytes, roughly, of what is kept of each group's past: joins, leaves, rebalances and refusals; 0 for none."""


class Journal(Section):
    """Records of what happened, for the fleet pipeline."""

    folder: Path
    """Where the segments are written; made where it is missing."""
    interval_seconds: float = Field(default=10, gt=0)
    """Seconds between two writes."""
    segment_bytes: Positive = 8_388_608
    """Bytes after which a segment is closed."""
    segment_seconds: float = Field(default=10, gt=0)
    """Seconds after which a segment is closed; readers see closed ones only."""
    total_bytes: Positive = Field(default=268_435_456, validate_default=True)
    """Bytes of all segments together, beyond which the oldest are deleted; at least twice `segment_bytes`."""

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
    series: Positive = 20_000
    """Series of groups, topics and partitions together; beyond it they are left out, and counted."""


class Log(Section):
    """The log on standard error."""

    format: Literal["auto", "console", "json"] = "auto"
    """`auto`: `console` on a terminal, `json` elsewhere."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe level that is written."""


def _default_id(settings: dict[str, Any]) -> str:
    listen = settings.get("listen")
    return f"{socket.gethostname()}:{listen.port if listen else 0}"


class Config(BaseSettings):
    """All settings. Unknown keys are refused, and nothing changes once it is read."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        env_prefix=ENVIRONMENT,
        env_nested_delimiter="__",
    )

    listen: ConfiguredAddress
    """HOST:PORT for clients; port 0 for any free one."""
    upstream: ConfiguredAddress
    """HOST:PORT of the broker."""
    admin: ConfiguredAddress | None = None
    """HOST:PORT of /metrics, /healthz, /readyz and /-/reload; none where it is not set."""
    sidecar_id: str = Field(default_factory=_default_id, min_length=1)
    """The name of this sidecar in its records. Default: host name and the port of `listen`."""
    mode: Literal["sidecar", "gateway"] = "sidecar"
    """`sidecar`: the broker advertises the sidecar's address. `gateway`: the sidecar puts its own for the brokers'."""
    gateway: Gateway = Gateway()
    own_connection: OwnConnection = OwnConnection()
    policies: Policies = Policies()
    answers: Answers = Answers()
    offsets_log: OffsetsLog = OffsetsLog()
    limits: Limits = Limits()
    journal: Journal | None = None
    metrics: Metrics = Metrics()
    log: Log = Log()

    @field_validator("upstream")
    @classmethod
    def _is_another(cls, upstream: Address, info: ValidationInfo) -> Address:
        if upstream == info.data.get("listen"):
            raise ValueError("is the sidecar's own listen address")
        return _with_port(upstream)

    @model_validator(mode="after")
    def _fits_its_mode(self) -> Self:
        if self.mode == "gateway" and self.gateway.advertise is None and self.listen.host in WILDCARDS:
            raise ValueError(f"gateway.advertise: is required where listen is {self.listen}")
        if self.mode == "gateway" and self.own_connection.address is not None:
            raise ValueError("own_connection.address: is for mode sidecar")
        return self

    @property
    def advertised_host(self) -> str:
        """The host that a gateway tells its clients."""
        return self.gateway.advertise or self.listen.host

    def rules(self) -> list[Policy]:
        """The policies that are switched on, in the order of the registry."""
        switched = ((policy, getattr(self.policies, policy.name)) for policy in POLICIES)
        return [policy(settings) for policy, settings in switched if settings is not None]

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what it is called with: `load_config` reads the other sources, so that it can name them."""
        return (init_settings,)


def load_config(file: Path | None = None, flags: Settings | None = None) -> Config:
    """Reads the settings from `flags` (nested as in the file), the environment and `file`, in this order.

    Raises:
        ConfigError: with a line for each fault, naming where it stands and the path of its key.
    """
    try:
        environment = EnvSettingsSource(Config)()
    except SettingsError as error:
        raise ConfigError([f"environment: {error}"]) from error
    in_file = _read_file(file) if file else {}
    settings = _merged(_merged(in_file, environment), flags or {})
    try:
        config = Config.model_validate(settings)
    except ValidationError as error:
        sources = {"flags": flags or {}, "environment": environment, str(file or ""): in_file}
        raise ConfigError([*fault_lines(error, Config, sources), *_strangers()]) from None
    if strangers := _strangers():
        raise ConfigError(strangers)
    return config


def _strangers() -> list[str]:
    """Variables that carry our prefix and mean nothing: a misspelt one must not be passed over."""
    known = {name.upper() for name in Config.model_fields}
    names = [name for name in os.environ if name.upper().startswith(ENVIRONMENT)]
    return [f"{name}: unknown key" for name in names if name.upper().split("__")[1] not in known]


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice: YAML would take the last, and nobody would notice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set[str]()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                twice = f"{key.value} is there twice"
                raise yaml.constructor.ConstructorError(problem=twice, problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _read_file(file: Path) -> Settings:
    try:
        settings = yaml.load(file.read_text("utf-8"), _Loader)
    except OSError as error:
        raise ConfigError([f"{file}: {(error.strerror or str(error)).lower()}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{file}: is not UTF-8"]) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError([f"{file}: is not YAML{where}: {getattr(error, 'problem', None) or error}"]) from error
    except ValueError as error:  # A date that is none.
        raise ConfigError([f"{file}: is not YAML: {error}"]) from error
    except RecursionError as error:
        raise ConfigError([f"{file}: is nested too deeply"]) from error
    if settings is None:
        return {}
    if not isinstance(settings, dict) or not all(isinstance(key, str) for key in settings):
        raise ConfigError([f"{file}: must be a mapping of keys"])
    return settings


def _merged(below: Settings, above: Settings) -> Settings:
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = _merged(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return merged
