"""The predecessor in a hot restart: the process whose ports this process takes over.

A pair of sockets connects both processes. The successor sends one byte when it serves clients. The successor reads the
end of the stream when the predecessor has ended, for whatever reason.
"""

import socket

import trio

READY = b"\n"


class Predecessor:
    """The predecessor.

    Attributes:
        gone: set when the predecessor has ended.
    """

    def __init__(self, channel: socket.socket) -> None:
        """`channel`: the socket that leads to the predecessor."""
        self._channel = channel
        self.gone = trio.Event()

    def report_ready(self) -> None:
        """Reports that this process serves clients. The predecessor then stops."""
        try:
            self._channel.send(READY)
        except OSError:
            pass  # The predecessor has ended, and `watch` notices the end.

    async def watch(self) -> None:
        """Waits until the predecessor has ended, and sets `gone`."""
        with trio.socket.from_stdlib_socket(self._channel) as channel:
            try:
                while await channel.recv(1):
                    pass
            except OSError:
                pass  # An error of the socket also means that the predecessor has ended.
        self.gone.set()
