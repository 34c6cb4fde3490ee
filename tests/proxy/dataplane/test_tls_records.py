"""The walker finds the ends of records, however the stream is cut."""

from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.proxy.dataplane.tls_records import RecordWalker

bodies = st.lists(st.binary(max_size=300), min_size=1, max_size=10)


def record(body: bytes) -> bytes:
    """Returns a record of application data (RFC 8446, 5.1)."""
    return b"\x17\x03\x03" + len(body).to_bytes(2, "big") + body


@given(bodies, st.integers(1, 400), st.integers(1, 4))
def test_walk_ends_at_records(contents: list[bytes], piece: int, most: int) -> None:
    """Each walk ends at the end of a record or of the data, and the walks together count each record once."""
    stream = b"".join(map(record, contents))
    ends = {sum(len(record(body)) for body in contents[: index + 1]) for index in range(len(contents))}
    walker = RecordWalker()
    counted = 0
    for offset in range(0, len(stream), piece):
        data = stream[offset : offset + piece]
        position = 0
        while position < len(data):
            position = walker.walk(data, position, most)
            assert walker.ended <= most
            assert position == len(data) or (walker.ended == most and offset + position in ends)
            counted += walker.ended
    assert counted == len(contents)
