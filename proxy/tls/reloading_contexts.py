"""TLS contexts that are made from files, and made again when the files have changed.

A context loads its files once. A certificate is replaced by new files under the same names, usually some weeks before
it expires. Connections that are open keep the certificate with which they began.
"""

import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from group_sidecar.proxy.config.listener_sections import ListenerTls
from group_sidecar.proxy.config.own_connection import Tls
from group_sidecar.proxy.runtime.log_throttle import LogThrottle
from group_sidecar.proxy.runtime.logging import log
from group_sidecar.proxy.tls.certificate_expiry import expires_at
from group_sidecar.proxy.tls.file_stamp import FileStamp, file_stamp

_load_numbers = count(1)


class UnusableFileError(Exception):
    """A file cannot be used. The text is one clause that names the key of the setting and the file.

    Attributes:
        key: the key of the setting.
        reason: the text without the key.
    """

    def __init__(self, key: str, file: Path | None, error: OSError) -> None:
        self.key, self.reason = key, f"{file} cannot be used: {file_fault(error)}"
        super().__init__(f"{key}: {self.reason}")


def file_fault(error: OSError) -> str:
    """Returns in lower case and a few words why a file cannot be used. OpenSSL's own reasons are in capitals."""
    reason: str | None = getattr(error, "reason", None) or error.strerror
    if isinstance(error, ssl.SSLError) and not error.reason:  # OpenSSL's text is "PEM lib" with a line of its sources.
        return "a certificate or a key in PEM is missing"
    return (reason or str(error)).replace("_", " ").lower()


class ReloadingContext:
    """A TLS context that follows its files.

    If changed files are unusable, a warning is logged and the last good context stays in use. This happens even in a
    regular replacement, because a certificate and its key are seldom replaced at the same moment.

    Args:
        name: names the context in log lines.
        files: the files of the context.
        make: makes the context. Raises OSError or UnusableFileError.
        certificate_file: which of these files has the context's certificate; None if the context has no certificate.

    Attributes:
        load_number: the number of the current context in this process. A context with another number may have another
            certificate.
        expires_at: when the certificate of the current context expires, in seconds since the epoch; None without a
            certificate, or if that is not known.

    Raises:
        UnusableFileError, OSError: the files cannot be used at the start.
    """

    def __init__(
        self,
        name: str,
        files: Sequence[Path],
        make: Callable[[], ssl.SSLContext],
        certificate_file: Path | None = None,
    ) -> None:
        self._name = name
        self._files = files
        self._make = make
        self._certificate_file = certificate_file
        self._log_throttle = LogThrottle()
        self._stamps: list[FileStamp] = []
        self._context, self.expires_at = self._made()
        self.load_number = next(_load_numbers)
        with suppress(OSError):  # If a file has vanished since `_made` read it, `current` reports this.
            self._stamps = self._file_stamps()

    def current(self) -> ssl.SSLContext:
        """Returns the context of the files as they are now. Each call checks the files, which takes microseconds."""
        try:
            stamps = self._file_stamps()
            if stamps != self._stamps:
                (self._context, self.expires_at), self._stamps = self._made(), stamps
                self.load_number = next(_load_numbers)
                log.info("certificates read again", context=self._name)
        except (OSError, UnusableFileError) as error:
            if times := self._log_throttle.due("tls"):
                cause = file_fault(error) if isinstance(error, OSError) else str(error)
                log.warning("certificates not read again", context=self._name, cause=cause, times=times)
        return self._context

    def _made(self) -> tuple[ssl.SSLContext, float | None]:
        """Returns a new context, and when its certificate expires.

        OpenSSL accepts more forms of a certificate than the parser that finds the expiry. If only the parser fails, the
        expiry is None.
        """
        context, file, expiry = self._make(), self._certificate_file, None
        if file is not None:
            try:
                expiry = expires_at(file)
            except ValueError as error:
                log.warning("expiry of certificate not known", context=self._name, file=str(file), cause=str(error))
        return context, expiry

    def _file_stamps(self) -> list[FileStamp]:
        return [file_stamp(file) for file in self._files]


def earliest_expiry(contexts: Sequence[ReloadingContext]) -> float | None:
    """Returns when the first certificate of these contexts expires, in seconds since the epoch.

    Changed files are read again first. The result is None if no context has a certificate with a known expiry.
    """
    for each in contexts:
        each.current()
    return min((each.expires_at for each in contexts if each.expires_at is not None), default=None)


def listener_context(settings: ListenerTls) -> ssl.SSLContext:
    """Returns the context of a listener. Raises UnusableFileError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion[settings.min_version.replace(".", "_")]
    context.set_ciphers(settings.ciphers)
    context.options |= ssl.OP_NO_RENEGOTIATION  # A client keeps the certificate with which it connected.
    _load_certificate(context, settings.certificate_file, settings.key_file)
    if settings.client_ca_file is not None:
        _load_authorities(context, "client_ca_file", settings.client_ca_file)
        required = settings.client_auth == "required"
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


def upstream_context(settings: Tls) -> ssl.SSLContext:
    """Returns the context of connections to a broker. Raises UnusableFileError."""
    context = client_context(settings.ca_file)
    context.check_hostname = settings.verify_hostname
    if settings.certificate_file is not None:
        _load_certificate(context, settings.certificate_file, settings.key_file)
    return context


def client_context(ca_file: Path | None) -> ssl.SSLContext:
    """Returns a context of connections to a server. The server's certificate must contain the name of the server.

    `ca_file`: the file of the trusted authorities, or None for the authorities that the system trusts. Raises
    UnusableFileError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_authorities(context, "ca_file", ca_file)
    return context


def listener_files(settings: ListenerTls) -> list[Path]:
    """Returns the files of a listener's context."""
    return _present(settings.certificate_file, settings.key_file, settings.client_ca_file)


def upstream_files(settings: Tls) -> list[Path]:
    """Returns the files of the context of connections to a broker."""
    return _present(settings.ca_file, settings.certificate_file, settings.key_file)


def _present(*files: Path | None) -> list[Path]:
    return [file for file in files if file is not None]


def _load_certificate(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    name, file = "certificate_file", certificate
    try:
        with certificate.open():  # OpenSSL does not say which of the files is missing.
            pass
        if key is not None:
            name, file = "key_file", key
            with key.open():
                pass
        # Without a password, OpenSSL would ask for one at the terminal.
        context.load_cert_chain(certificate, key, password="")
    except OSError as error:
        raise UnusableFileError(name, file, error) from None


def _load_authorities(context: ssl.SSLContext, key: str, file: Path | None) -> None:
    try:
        if file is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(file)
    except OSError as error:
        raise UnusableFileError(key, file, error) from None
