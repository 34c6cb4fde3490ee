"""All settings of the sidecar. `loading` reads them."""

import socket
from typing import Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from group_sidecar.policies.all_policies import POLICIES
from group_sidecar.policies.policy import Policy
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

ENVIRONMENT = "GROUP_SIDECAR__"
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

        `loading.load_config` reads the other sources itself, so that an error can name its source.
        """
        return (init_settings,)
