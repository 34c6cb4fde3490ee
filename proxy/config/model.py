"""All settings of the sidecar, and how they are read.

Flags take precedence over environment variables, and environment variables over the file. `errors` contains the texts
for invalid settings.
"""

import os
import socket
import stat
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from group_sidecar.policies.all_policies import POLICIES
from group_sidecar.policies.policy import Policy
from group_sidecar.proxy.config.errors import Settings, error_lines
from group_sidecar.proxy.config.gateway_section import Gateway
from group_sidecar.proxy.config.limits_section import Limits
from group_sidecar.proxy.config.listener_sections import Listener, reject_conflicts
from group_sidecar.proxy.config.own_connection import OwnConnection
from group_sidecar.proxy.config.sections import (
    AdminAccess,
    Answers,
    ConfiguredAddress,
    Journal,
    Log,
    Metrics,
    OffsetsLog,
    Policies,
    require_port,
)
from group_sidecar.proxy.runtime.addresses import WILDCARDS, Address
from group_sidecar.proxy.runtime.os_errors import reason_of

ENVIRONMENT = "GROUP_SIDECAR__"


class ConfigError(Exception):
    """The settings are invalid. `lines`: one line for each fault, as text for the user."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines


DEFAULT_LISTENER = "default"
"""The name of the listener that the keys `listen` and `upstream` describe."""


def _default_id(settings: dict[str, Any]) -> str:
    listen = settings.get("listen") or next((each.listen for each in settings.get("listeners") or ()), None)
    return f"{socket.gethostname()}:{listen.port if listen else 0}"


class Config(BaseSettings):
    """All settings. Unknown keys are refused. The values never change: a reload makes a new `Config`."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        env_prefix=ENVIRONMENT,
        env_nested_delimiter="__",
    )

    listeners: tuple[Listener, ...] = ()
    """In place of `listen` and `upstream`: the listeners of one broker. The sidecar has one copy of the broker's group
    coordinator for all of them. Replication between brokers should not pass through the sidecar."""
    listen: ConfiguredAddress | None = Field(default=None, validate_default=True)
    """HOST:PORT on which the sidecar accepts clients. With port 0, the system chooses a free port. Required, unless
    there are `listeners`."""
    upstream: ConfiguredAddress | None = Field(default=None, validate_default=True)
    """HOST:PORT of the broker. Required, unless there are `listeners`."""
    admin: ConfiguredAddress | None = None
    """HOST:PORT of the admin port, which serves the page, the JSON under /api/v1/, /metrics, /healthz, /livez, /readyz,
    /startupz and /-/reload. Default: there is no admin port."""
    admin_access: AdminAccess = AdminAccess()
    sidecar_id: str = Field(default_factory=_default_id, min_length=1)
    """The name of this sidecar in its records. Default: the host name and the port of the first listener."""
    mode: Literal["sidecar", "gateway"] = "sidecar"
    """`sidecar`: the broker advertises the sidecar's address. `gateway`: the sidecar puts its own address into replies,
    in place of the brokers' addresses."""
    gateway: Gateway = Gateway()
    own_connection: OwnConnection = OwnConnection()
    policies: Policies = Policies()
    answers: Answers = Answers()
    group_metadata_request: bool = False
    """Treats version 1 of API key 10 (FindCoordinator) as the GroupMetadata request of KIP-40's draft, and answers it
    (docs/group-metadata-request.md). No released version of Kafka has this request. ApiVersions then offers only
    FindCoordinator v0, which finds only coordinators of groups. So clients with transactions do not work on this
    listener."""
    offsets_log: OffsetsLog = OffsetsLog()
    limits: Limits = Limits()
    io_uring: bool = True
    """Sends small frames that are ready together in one system call, if the system allows io_uring (Linux 6.1).
    Otherwise each frame is sent by its own system call. The log line `started` reports which is used."""
    journal: Journal | None = None
    metrics: Metrics = Metrics()
    log: Log = Log()

    @field_validator("listen", "upstream")
    @classmethod
    def _stands_alone(cls, address: Address | None, info: ValidationInfo) -> Address | None:
        if "listeners" in info.data and bool(info.data["listeners"]) == (address is not None):
            raise ValueError("is not allowed beside listeners" if address else "is required")
        return address

    @field_validator("upstream")
    @classmethod
    def _is_another(cls, upstream: Address | None, info: ValidationInfo) -> Address | None:
        if upstream is None:
            return None
        if upstream == info.data.get("listen"):
            raise ValueError("is the sidecar's own listen address")
        return require_port(upstream)

    @field_validator("listeners")
    @classmethod
    def _are_distinct(cls, listeners: tuple[Listener, ...]) -> tuple[Listener, ...]:
        reject_conflicts(listeners)
        return listeners

    @field_validator("admin")
    @classmethod
    def _is_a_port_of_its_own(cls, admin: Address | None, info: ValidationInfo) -> Address | None:
        taken = [info.data.get("listen"), *(listener.listen for listener in info.data.get("listeners") or ())]
        if admin is not None and admin.port and admin in taken:
            raise ValueError("is the sidecar's own listen address")
        return admin

    @model_validator(mode="after")
    def _fits_its_mode(self) -> Self:
        if self.mode == "gateway":
            if len(self.listeners) > 1:
                raise ValueError("listeners: mode gateway has one listener")
            listen = self.client_listeners[0].listen
            if self.gateway.one_port and self.client_listeners[0].tls is None:
                raise ValueError("gateway.one_port: needs a listener with tls, which shows the names")
            if self.gateway.advertise is None and listen.host in WILDCARDS:
                raise ValueError(f"gateway.advertise: is required where listen is {listen}")
            if self.own_connection.address is not None:
                raise ValueError("own_connection.address: is for mode sidecar")
            if listen in self.gateway.bootstrap_servers:
                raise ValueError("gateway.bootstrap_servers: has the sidecar's own listen address")
        return self

    @property
    def client_listeners(self) -> tuple[Listener, ...]:
        """The items of `listeners`, or one listener made from `listen` and `upstream`."""
        if self.listeners:
            return self.listeners
        assert self.listen is not None
        assert self.upstream is not None
        return (Listener.model_construct(name=DEFAULT_LISTENER, listen=self.listen, upstream=self.upstream),)

    @property
    def listen_addresses(self) -> dict[str, Address]:
        """The address that each listener accepts clients at, by the listener's name."""
        return {listener.name: listener.listen for listener in self.client_listeners}

    @property
    def broker_address(self) -> Address:
        """The upstream address of the first listener."""
        return self.client_listeners[0].upstream

    @property
    def own_connection_in_force(self) -> OwnConnection:
        """`own_connection`. Without `address` and `tls`, its `tls` is the `upstream_tls` of the first listener."""
        own, upstream_tls = self.own_connection, self.client_listeners[0].upstream_tls
        if own.address is not None or own.tls is not None or upstream_tls is None:
            return own
        return own.model_copy(update={"tls": upstream_tls})

    def sidecar_connects_like_clients_of(self, listener: Listener) -> bool:
        """Whether the sidecar's own connection leads to a listener's upstream address, without SASL.

        The result is False if the own connection uses TLS but the connections of the listener's clients do not. If the
        result is True, the sidecar learns from its own connection whether the broker's listener requires SASL.
        """
        own = self.own_connection
        same_address = (own.address or self.broker_address) == listener.upstream
        return same_address and own.sasl is None and (own.tls is None or listener.upstream_tls is not None)

    @property
    def advertised_host(self) -> str:
        """The host under which clients reach the gateway, or the template for the names of its brokers."""
        return self.gateway.advertise or self.client_listeners[0].listen.host

    def enabled_policies(self) -> list[Policy]:
        """Returns the policies that are switched on, in the order of `POLICIES`."""
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
        """Returns only the arguments of the constructor as a source.

        `load_config` reads the other sources itself, so that an error can name its source.
        """
        return (init_settings,)


def load_config(file: Path | None = None, flags: Settings | None = None, *, only_regular: bool = False) -> Config:
    """Reads the settings from `flags` (nested as in the file), the environment and `file`, in this order of precedence.

    Args:
        file: the file with settings; None if there is none.
        flags: the settings of the command line.
        only_regular: whether to refuse a file that is not regular. To open or read a FIFO may block for ever.

    Raises:
        ConfigError: with a line for each fault, which names the source and the path of the key.
    """
    try:
        environment = EnvSettingsSource(Config)()
    except SettingsError as error:
        raise ConfigError([f"environment: {error}"]) from error
    in_file = _read_file(file, only_regular=only_regular) if file else {}
    settings = _merged(_merged(in_file, environment), flags or {})
    try:
        config = Config.model_validate(settings)
    except ValidationError as error:
        sources = {"flags": flags or {}, "environment": environment, str(file or ""): in_file}
        raise ConfigError([*error_lines(error, Config, sources), *_unknown_variables()]) from None
    if unknown_variables := _unknown_variables():
        raise ConfigError(unknown_variables)
    return config


def _unknown_variables() -> list[str]:
    """Returns a line for each environment variable with the sidecar's prefix that is no setting, such as a misspelt
    key.
    """
    known = {name.upper() for name in Config.model_fields}
    names = [name for name in os.environ if name.upper().startswith(ENVIRONMENT)]
    return [f"{name}: unknown key" for name in names if name.upper().split("__")[1] not in known]


class _Loader(yaml.SafeLoader):
    """Refuses a mapping that contains a key twice. YAML would silently use the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set[str]()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                twice = f"{key.value} is there twice"
                raise yaml.constructor.ConstructorError(problem=twice, problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _read_file(file: Path, *, only_regular: bool) -> Settings:
    try:
        settings = yaml.load((_read_regular(file) if only_regular else file.read_bytes()).decode(), _Loader)
    except OSError as error:
        raise ConfigError([f"{file}: {reason_of(error)}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{file}: is not UTF-8"]) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError([f"{file}: is not YAML{where}: {getattr(error, 'problem', None) or error}"]) from error
    except ValueError as error:  # For example an impossible date.
        raise ConfigError([f"{file}: is not YAML: {error}"]) from error
    except RecursionError as error:
        raise ConfigError([f"{file}: is nested too deeply"]) from error
    if settings is None:
        return {}
    if not isinstance(settings, dict) or not all(isinstance(key, str) for key in settings):
        raise ConfigError([f"{file}: must be a mapping of keys"])
    return settings


def _read_regular(file: Path) -> bytes:
    """Returns the content of a regular file, or of the regular file to which a link leads.

    Raises:
        OSError: the file cannot be read.
        ConfigError: the file is not regular.
    """
    # Without O_NONBLOCK, the opening of a FIFO waits for a writer.
    with open(file, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise ConfigError([f"{file}: is not a regular file, so it cannot be read again"])
        return opened.read()


def _merged(below: Settings, above: Settings) -> Settings:
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = _merged(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return merged
