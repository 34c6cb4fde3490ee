"""Builds LZ4 frames as Kafka writes them: the blocks are independent, and only the last block may be shorter."""

import cramjam


def lz4_frame(
    content: bytes, *, flags: int = 0x60, stored: bool = False, head: bytes = b"", head_checksum: int = 0
) -> bytes:
    """Returns a frame with blocks of at most 64 KiB.

    Args:
        content: the uncompressed content.
        flags: the flags of the frame. With 0x10, each block gets a checksum of zeros.
        stored: whether the blocks contain uncompressed bytes.
        head: the optional fields that the flags announce: a content size, a dictionary id.
        head_checksum: the checksum of the frame's head. The default is wrong, because no decoder checks it.
    """
    parts = [b"\x04\x22\x4d\x18", bytes((flags, 0x40)), head, bytes((head_checksum,))]
    for start in range(0, len(content), 64 << 10):
        block = content[start : start + (64 << 10)]
        if not stored:
            block = bytes(cramjam.lz4.compress_block(block, store_size=False))
        parts += [(len(block) | stored << 31).to_bytes(4, "little"), block, bytes(4 if flags & 0x10 else 0)]
    return b"".join((*parts, bytes(4)))
