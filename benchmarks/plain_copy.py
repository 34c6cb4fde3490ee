"""A proxy that only copies bytes between two trio streams, to measure what trio alone costs.

    python -m benchmarks.plain_copy LISTEN UPSTREAM

The copy loop is that of trio's tutorial.
"""

import sys

import trio

from tests.kafka.processes import Address

CHUNK = 1 << 16
"""Bytes per read."""


async def copy(source: trio.SocketStream, sink: trio.SocketStream) -> None:
    """Copies until the source ends, and then sends the end to the sink."""
    try:
        while data := await source.receive_some(CHUNK):
            await sink.send_all(data)
        await sink.send_eof()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        await trio.aclose_forcefully(source)
        await trio.aclose_forcefully(sink)


async def serve(listen: Address, upstream: Address) -> None:
    """Accepts connections until the process ends."""

    async def session(client: trio.SocketStream) -> None:
        async with client, await trio.open_tcp_stream(*upstream) as broker, trio.open_nursery() as nursery:
            nursery.start_soon(copy, client, broker)
            nursery.start_soon(copy, broker, client)

    await trio.serve_tcp(session, listen[1], host=listen[0], backlog=1024)


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    trio.run(serve, _address(sys.argv[1]), _address(sys.argv[2]))
