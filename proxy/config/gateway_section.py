"""The section of the configuration that describes a gateway.

Docstrings of the section and its fields are published in docs/configuration.md.
"""

import re
from ipaddress import ip_address
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from group_sidecar.policies.policy import WholeNumber
from group_sidecar.proxy.config.listener_sections import ServerName
from group_sidecar.proxy.config.sections import ConfiguredAddress, Section, require_port
from group_sidecar.proxy.runtime.addresses import LARGEST_NODE_ID, NODE, WILDCARDS, NodeNames

_HOST_NAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*")


BootstrapServer = Annotated[ConfiguredAddress, AfterValidator(require_port)]


def _advertised(advertise: str) -> str:
    """Returns a host, or a template for host names in lower case. Raises ValueError if the text is neither."""
    if NODE not in advertise and not set("{}") & set(advertise):
        if advertise in WILDCARDS or not (_HOST_NAME.fullmatch(advertise) or _is_ip_address(advertise)):
            raise ValueError("must be a host name or an IP address, without a port")
        return advertise
    if advertise.count(NODE) != 1 or set("{}") & set(advertise.replace(NODE, "")):
        raise ValueError(f"may have {NODE} once, and no other braces")
    if not _HOST_NAME.fullmatch(NodeNames(advertise).name(LARGEST_NODE_ID)):
        raise ValueError(f"must be a host name with {NODE} in it, for instance broker-{NODE}.kafka.example")
    return advertise.lower()


def _is_ip_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


class Gateway(Section):
    """Settings of the gateway. Used only if `mode` is `gateway`."""

    bootstrap_servers: tuple[BootstrapServer, ...] = ()
    """Further addresses at which the gateway looks for the cluster if it cannot find it at `upstream`. Each address may
    be that of a load balancer. When the gateway knows the brokers, it connects clients to the brokers' own
    addresses."""

    advertise: Annotated[str, AfterValidator(_advertised)] | None = None
    """The host at which clients reach the gateway. Default: the host of `listen`. Required if the host of `listen` is a
    wildcard (`0.0.0.0` or `::`). `{node}` stands for the node id of the broker, for instance
    `broker-{node}.kafka.example`. All these names must lead to the gateway."""
    first_port: WholeNumber = Field(default=0, ge=0, le=0xFFFF)
    """The gateway opens port `first_port` + N for the broker with node id N. With 0, or if that port is taken or above
    65535, it opens any free port."""
    strict_ports: bool = False
    """Whether the port of a broker must be `first_port` + N, for instance because a firewall lets only these ports
    pass. If that port is taken or above 65535, the gateway logs an error, and `/readyz` names the broker. Until the
    port can be opened, each reply that contains the address of that broker closes its connection."""
    one_port: bool = False
    """Whether all brokers share the port of `listen`. The name that a client asks for when TLS begins (SNI) chooses the
    broker. Needs `tls`, `bootstrap_names`, and `{node}` in `advertise`."""
    bootstrap_names: tuple[ServerName, ...] = ()
    """With `one_port`, the names in the clients' `bootstrap.servers`. Clients that ask for one of these names are
    connected to the bootstrap broker. The gateway refuses the handshakes of clients that ask for no name, or for an
    unknown name."""
    advertised_port: WholeNumber = Field(default=0, ge=0, le=0xFFFF)
    """With `one_port`, the port at which clients reach the gateway. Default: the port of `listen`."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.strict_ports and not self.first_port:
            raise ValueError("strict_ports: needs first_port")
        names = NodeNames(self.advertise or "")
        if not self.one_port:
            for key in ("bootstrap_names", "advertised_port"):
                if getattr(self, key):
                    raise ValueError(f"{key}: needs one_port")
            return self
        self._fits_one_port(names)
        return self

    def _fits_one_port(self, names: NodeNames) -> None:
        """Raises ValueError if the other settings do not fit `one_port`."""
        if self.first_port:
            raise ValueError("first_port: is for a port for each broker, and not for one_port")
        if not names.is_template:
            raise ValueError(f"advertise: needs {NODE} for one_port")
        if not self.bootstrap_names:
            raise ValueError("bootstrap_names: is required for one_port")
        for name in self.bootstrap_names:
            if name.startswith("*."):
                raise ValueError(f"bootstrap_names: {name} must be a whole name")
            if _is_ip_address(name):
                raise ValueError(f"bootstrap_names: {name} is an IP address, and no client asks for it by name")
            if (node := names.node_of(name)) is not None:
                raise ValueError(f"bootstrap_names: {name} is the name of the broker with node id {node}")
