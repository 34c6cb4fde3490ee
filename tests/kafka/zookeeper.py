"""Runs ZooKeeper for brokers that keep their metadata in it: one server from the broker's jars, as a plain process."""

import socket
from collections.abc import Sequence
from pathlib import Path

from tests.kafka.processes import Address, ChildProcess

_CONFIGURATION = """\
tickTime=1000
dataDir={data}
clientPortAddress={host}
clientPort={port}
maxClientCnxns=0
admin.enableServer=false
forceSync=no
"""


class ZooKeeper:
    """One server on one address.

    Args:
        folder: an empty folder for its data, its configuration and its log.
        java: the command up to the main class: the JVM, its flags and the jars.
    """

    def __init__(self, folder: Path, java: Sequence[str], address: Address) -> None:
        self.folder = folder
        self.address = address
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self._process = ChildProcess([*java, "-Xmx128m", main, str(folder / "zoo.cfg")], folder / "zookeeper.log")
        self._running = False

    def start(self) -> None:
        """Starts the server if it is not running. Returns when it accepts connections.

        Raises:
            ProcessFailed: the server did not start. The text contains the end of its log.
        """
        if self._running:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        host, port = self.address
        text = _CONFIGURATION.format(data=self.folder / "data", host=host, port=port)
        (self.folder / "zoo.cfg").write_text(text)
        self._process.start()
        self._running = True
        try:
            self._process.wait_until(self._accepts)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stops the server if it is running. It can be started again with its data."""
        if self._running:
            self._process.stop()
            self._running = False

    def _accepts(self) -> bool:
        try:
            socket.create_connection(self.address, timeout=2).close()
        except OSError:
            return False
        return True
