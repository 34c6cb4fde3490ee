"""LZ4 frames as Kafka writes them, for the tests: independent blocks, the last one short."""

import cramjam


def lz4_frame(
    content: bytes, *, flags: int = 0x60, stored: bool = False, head: bytes = b"", head_checksum: int = 0
) -> bytes:
    """A frame with blocks of at most 64 KiB.

    Args:
        content: what is in it.
        flags: the frame's; 0x10 adds a checksum to each block, of zeros.
        stored: whether the blocks are not compressed.
        head: what the flags promise behind the two bytes of the head: a content size, a dictionary id.
        head_checksum: never right, as nobody looks.
    """
    parts = [b"\x04\x22\x4d\x18", bytes((flags, 0x40)), head, bytes((head_checksum,))]
    for start in range(0, len(content), 64 << 10):
        block = content[start : start + (64 << 10)]
        if not stored:
            block = bytes(cramjam.lz4.compress_block(block, store_size=False))
        parts += [(len(block) | stored << 31).to_bytes(4, "little"), block, bytes(4 if flags & 0x10 else 0)]
    return b"".join((*parts, bytes(4)))
