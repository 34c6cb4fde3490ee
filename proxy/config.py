"""What an operator can set.

Owns: the names, bounds and defaults of all settings, where they come from, and what a wrong one is called.
Must not know: what the settings do. Flags go before environment variables, and those before the file.
"""

import os
import socket
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from group_sidecar.proxy.addresses import Address, parse_address

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


def _whole_number(value: object) -> object:
    """Environment variables and flags are text, which a Literal does not read."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


ConfiguredAddress = Annotated[Address, BeforeValidator(_address), NoDecode]
Positive = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A mapping inside the configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Gateway(Section):
    """Used where `mode` is `gateway`."""

    advertise: str | None = None
    """The host that clients reach the gateway by. Default: the host of `listen`, unless that is a wildcard."""
    first_port: int = Field(default=0, ge=0, le=0xFFFF)
    """Node N gets the port `first_port` + N; with 0 any port that is free."""


class GroupMaxSize(Section):
    """How many members a group may have (Kafka's `group.max.size`, KIP-389)."""

    limit: Positive
    """Members; a join beyond it is refused."""
    error_code: Annotated[Literal[77, 81], BeforeValidator(_whole_number)] = 77
    """What the refused client is told: 77 as KIP-389 has it, 81 as Kafka has released it."""


class Policies(Section):
    """What may pass."""

    group_max_size: GroupMaxSize | None = None


class Answers(Section):
    """Requests that the sidecar answers itself."""

    enabled: bool = True
    """Whether it answers ListGroups, DescribeGroups and OffsetFetch where its copy of the coordinator is certain."""
    exclusive: bool = False
    """Your word that no client reaches the broker but through this sidecar, and that a broker which cannot list its
    groups had none when the sidecar started. Without it nothing is answered that the broker can answer."""
    authorizer: Literal["auto", "none"] = "auto"
    """`auto`: the broker is asked (DescribeAcls), and while it has an authorizer all is left to it. `none`: your word
    that it has none, for brokers that cannot be asked."""


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
    """HOST:PORT of /metrics, /healthz and /readyz; none where it is not set."""
    sidecar_id: str = Field(default_factory=_default_id, min_length=1)
    """The name of this sidecar in its records. Default: host name and the port of `listen`."""
    mode: Literal["sidecar", "gateway"] = "sidecar"
    """`sidecar`: the broker advertises the sidecar's address. `gateway`: the sidecar puts its own for the brokers'."""
    gateway: Gateway = Gateway()
    policies: Policies = Policies()
    answers: Answers = Answers()
    limits: Limits = Limits()
    journal: Journal | None = None
    metrics: Metrics = Metrics()
    log: Log = Log()

    @field_validator("upstream")
    @classmethod
    def _is_another(cls, upstream: Address, info: ValidationInfo) -> Address:
        if upstream == info.data.get("listen"):
            raise ValueError("is the sidecar's own listen address")
        if upstream.port == 0:
            raise ValueError("the port must be at least 1")
        return upstream

    @model_validator(mode="after")
    def _has_a_name(self) -> Self:
        if self.mode == "gateway" and self.gateway.advertise is None and self.listen.host in WILDCARDS:
            raise ValueError(f"gateway.advertise: is required where listen is {self.listen}")
        return self

    @property
    def advertised_host(self) -> str:
        """The host that a gateway tells its clients."""
        return self.gateway.advertise or self.listen.host

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


Settings = dict[str, Any]


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
        faults = [fault for fault in error.errors() if fault["type"] != "default_factory_not_called"]
        lines = [_line(fault, file, in_file, environment, flags or {}) for fault in faults]
        raise ConfigError([*lines, *_strangers()]) from None
    if strangers := _strangers():
        raise ConfigError(strangers)
    return config


def _strangers() -> list[str]:
    """Variables that carry our prefix and mean nothing: a misspelt one must not be passed over."""
    known = {name.upper() for name in Config.model_fields}
    names = [name for name in os.environ if name.upper().startswith(ENVIRONMENT)]
    return [f"{name}: unknown key" for name in names if name.upper().split("__")[1] not in known]


def _read_file(file: Path) -> Settings:
    try:
        settings = yaml.safe_load(file.read_text("utf-8"))
    except OSError as error:
        raise ConfigError([f"{file}: {(error.strerror or str(error)).lower()}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{file}: is not UTF-8"]) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError([f"{file}: is not YAML{where}: {getattr(error, 'problem', None) or error}"]) from error
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


def _line(fault: ErrorDetails, file: Path | None, in_file: Settings, environment: Settings, flags: Settings) -> str:
    path = fault["loc"]
    text = f"{'.'.join(map(str, path))}: {_reason(fault)}" if path else _reason(fault)
    if _holds(flags, path):
        return f"flags: {text}"
    if _holds(environment, path):
        return f"environment: {text}"
    return f"{file}: {text}" if file else text


def _holds(settings: Any, path: tuple[int | str, ...]) -> bool:
    for key in path:
        if not isinstance(settings, dict) or key not in settings:
            return False
        settings = settings[key]
    return bool(path)


_REASONS = {
    "missing": "is required",
    "greater_than_equal": "must be at least {ge:g}",
    "greater_than": "must be more than {gt:g}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "value_error": "{error}",
    "model_type": "must be a mapping of keys",
    "model_attributes_type": "must be a mapping of keys",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "path_type": "must be a path",
    "string_too_short": "must not be empty",
}
"""What pydantic's errors are called here, by its error types."""


def _reason(fault: ErrorDetails) -> str:
    if fault["type"] != "extra_forbidden":
        return _REASONS.get(fault["type"], fault["msg"]).format_map(fault.get("ctx", {}))
    close = get_close_matches(str(fault["loc"][-1]), _keys_at(fault["loc"][:-1]), n=1)
    return f"unknown key; did you mean {close[0]}?" if close else "unknown key"


def _keys_at(path: tuple[int | str, ...]) -> list[str]:
    model: type[BaseModel] | None = Config
    for key in path:
        model = section_of(model.model_fields[str(key)].annotation) if model else None
    return list(model.model_fields) if model else []


def section_of(annotation: Any) -> type[Section] | None:
    """The section that a field's type holds, optional or not; None where it holds a plain value."""
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, Section):
            return kind
    return None
