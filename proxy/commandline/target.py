"""The target of a query, from flags and environment: a broker, or the admin ports of sidecars, and the token."""

import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, TypeVar
from urllib.parse import urlsplit

import typer

from group_sidecar.proxy.commandline.client_properties import (
    NO_PROPERTIES,
    ClientProperties,
    PropertyError,
    read_client_properties,
)
from group_sidecar.proxy.runtime.addresses import Address, parse_address

TOKEN, TOKEN_FILE, CA_FILE = "GROUP_SIDECAR_TOKEN", "GROUP_SIDECAR_TOKEN_FILE", "GROUP_SIDECAR_CA_FILE"
COMMAND_CONFIG = "GROUP_SIDECAR_COMMAND_CONFIG"
TARGET_VARIABLES = {
    "bootstrap": "GROUP_SIDECAR_BOOTSTRAP",
    "sidecar": "GROUP_SIDECAR_ADMIN",
    "all_sidecars": "GROUP_SIDECAR_ALL_SIDECARS",
}
"""The environment variable of each flag that names a target.

With two underscores in a name, the variable would be a setting of the sidecar.
"""
ENVIRONMENT_HELP = (
    f"If no flag names a target, {', '.join(TARGET_VARIABLES.values())} do. The second may have several addresses. "
    f"{TOKEN_FILE} or {TOKEN} has the token, {CA_FILE} the authorities, {COMMAND_CONFIG} the file of --command-config."
)
"""The paragraph about environment variables in the help."""

DEFAULT_TIMEOUT = 10.0

T = TypeVar("T")


class WrongUsage(typer.BadParameter):
    """The flags name no target, or do not fit together, although each flag is valid."""

    def format_message(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class QueryTarget:
    """The target of a query.

    Attributes:
        bootstrap: a broker or a sidecar's port for clients, or None if the target is admin ports.
        sidecars: the URLs of admin ports, without a slash at the end.
        token: the token for the admin ports, or None.
        tls: the TLS context for https, or None if no URL needs it.
        timeout: seconds to wait for a connection, and for each reply.
        client: the TLS context, user and client id for connections to brokers.
    """

    bootstrap: Address | None = None
    sidecars: tuple[str, ...] = ()
    token: str | None = None
    tls: ssl.SSLContext | None = None
    timeout: float = DEFAULT_TIMEOUT
    client: ClientProperties = NO_PROPERTIES

    def require_sidecars(self) -> None:
        """Raises WrongUsage if the target is a broker."""
        if self.bootstrap:
            raise WrongUsage("Only the admin port of a sidecar knows that: --sidecar or --all-sidecars.")


def admin_url(text: str) -> str:
    """Returns the URL of an admin port from HOST:PORT or a URL. Raises ValueError with one clause for the user."""
    text = text.strip()
    if "://" not in text:
        return f"http://{parse_address(text)}"
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or not url.hostname or not text.isprintable() or " " in text:
        raise ValueError("must be HOST:PORT, or a URL of http or https")
    if url.username is not None or url.query or url.fragment:
        raise ValueError("must have neither user, query nor fragment")
    if url.port == 0:  # Reading `port` raises ValueError if the port is invalid.
        raise ValueError("the port must be at least 1")
    return text.rstrip("/")


def addresses_in(lines: str) -> tuple[str, ...]:
    """Returns the URLs of the admin ports in a file with one address per line. `#` begins a comment.

    Raises:
        ValueError: a line is invalid; the text names the line. Or the file has no addresses.
    """
    urls = []
    for number, line in enumerate(lines.splitlines(), 1):
        if address := line.partition("#")[0].strip():
            try:
                urls.append(admin_url(address))
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None
    if not urls:
        raise ValueError("has no addresses")
    return tuple(dict.fromkeys(urls))


def target_of(flags: Mapping[str, Any], standard_input: TextIO, environ: Mapping[str, str] = os.environ) -> QueryTarget:
    """Returns the target in the flags, or in the environment if the flags name none.

    Args:
        flags: the values by parameter name. A flag that was not given is None.
        standard_input: read if the file of `--all-sidecars` is ``-``.
        environ: the environment variables.

    Raises:
        WrongUsage: no target is named, or a target is named in two ways.
        typer.BadParameter: a value is invalid, or a file cannot be read.
    """
    how, hint, value = _named_target(flags, environ)
    if how == "bootstrap":
        address, client = _checked(parse_address, str(value), hint), _client_properties(flags, environ)
        timeout = flags["timeout"] or client.timeout or DEFAULT_TIMEOUT
        return QueryTarget(bootstrap=address, timeout=timeout, client=client)
    if flags["command_config"]:
        raise typer.BadParameter("is for --bootstrap", param_hint="'--command-config'")
    if how == "sidecar":
        words = value.split() if isinstance(value, str) else value
        urls = tuple(dict.fromkeys(_checked(admin_url, word, hint) for word in words))
    else:
        lines = standard_input.read() if value == "-" else _read(Path(str(value)), hint)
        urls = _checked(addresses_in, lines, hint, "standard input: " if value == "-" else f"{value}: ")
    return QueryTarget(
        sidecars=urls,
        token=_token(flags, environ),
        tls=_tls(flags, environ, urls),
        timeout=flags["timeout"] or DEFAULT_TIMEOUT,
    )


def _named_target(flags: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[str, str, Any]:
    """Returns the flag or variable that names the target: its key in TARGET_VARIABLES, its name and its value."""
    found = [(how, f"--{how.replace('_', '-')}", flags[how]) for how in TARGET_VARIABLES if flags[how]]
    if not found:
        found = [(how, name, environ[name]) for how, name in TARGET_VARIABLES.items() if environ.get(name)]
    if not found:
        raise WrongUsage("Name a target: --bootstrap, --sidecar or --all-sidecars.")
    if len(found) > 1:
        raise WrongUsage(f"Name only one of {', '.join(hint for _, hint, _ in found)}.")
    return found[0]


def _token(flags: Mapping[str, Any], environ: Mapping[str, str]) -> str | None:
    """Returns the token or None. A token file takes precedence over the variable that contains the token."""
    given = flags["token_file"] or environ.get(TOKEN_FILE)
    hint = "--token-file" if given else TOKEN
    token = _read(Path(given), hint).strip() if given else environ.get(TOKEN)
    if token is not None and not (token and token.isascii() and token.isprintable()):
        raise typer.BadParameter("has no token of printable ASCII", param_hint=f"'{hint}'")
    return token


def _client_properties(flags: Mapping[str, Any], environ: Mapping[str, str]) -> ClientProperties:
    file = flags["command_config"] or environ.get(COMMAND_CONFIG)
    if not file:
        return NO_PROPERTIES
    try:
        return read_client_properties(Path(file))
    except PropertyError as error:
        raise typer.BadParameter(f"{file}: {error}", param_hint="'--command-config'") from None


def _tls(flags: Mapping[str, Any], environ: Mapping[str, str], urls: tuple[str, ...]) -> ssl.SSLContext | None:
    if not any(url.startswith("https:") for url in urls):
        if flags["ca_file"]:
            raise typer.BadParameter("is for addresses that begin with https://", param_hint="'--ca-file'")
        return None
    ca_file = flags["ca_file"] or environ.get(CA_FILE)
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (ssl.SSLError, OSError) as error:
        reason = "has no certificates (PEM)" if isinstance(error, ssl.SSLError) else error.strerror
        raise typer.BadParameter(f"{ca_file}: {reason}", param_hint="'--ca-file'") from None


def _read(file: Path, hint: str) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise typer.BadParameter(f"{file}: {reason}", param_hint=f"'{hint}'") from None


def _checked(parse: Callable[[str], T], text: str, hint: str, where: str = "") -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(f"{where}{error}", param_hint=f"'{hint}'") from None
