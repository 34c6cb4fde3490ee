"""The subject of a certificate, as Kafka writes it in the name of a principal.

Kafka's `DefaultKafkaPrincipalBuilder` uses Java's `X500Principal.getName()`, which follows RFC 2253: the most specific
attribute comes first. This module returns the same text, because ACLs contain it. An attribute that RFC 2253 does not
name has its number and the bytes of its value in hexadecimal digits.
"""

from collections.abc import Iterator

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attributes of RFC 2253, section 2.3."""
_TEXT_TYPES = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""DER's tags of UTF8String, PrintableString, T61String, IA5String, GeneralString and BMPString. Java reads the bytes of
all of them as UTF-8."""
_ESCAPES = {ord(each): f"\\{each}" for each in ',=+<>#;"\\'} | {0: "\\00"}
_VERSION = 0xA0
"""The tag of a certificate's first field, which may be missing."""


def subject_of(certificate: bytes) -> str:
    """Returns the subject of a certificate in DER, for instance `CN=alice,OU=billing,O=Example`.

    OpenSSL has parsed the certificate before, so the DER is well-formed.
    """
    to_be_signed = _parts(_content(certificate))[0]
    fields = _parts(_content(to_be_signed))
    with_version = fields[0][0] == _VERSION
    return distinguished_name(fields[5 if with_version else 4])


def distinguished_name(name: bytes) -> str:
    """Returns the text of a name in DER."""
    return ",".join("+".join(map(_attribute, _parts(_content(each)))) for each in reversed(_parts(_content(name))))


def _attribute(attribute: bytes) -> str:
    oid, value = _parts(_content(attribute))
    number = _dotted(_content(oid))
    keyword = _KEYWORDS.get(number)
    if keyword is None or value[0] not in _TEXT_TYPES:
        return f"{keyword or number}=#{value.hex()}"
    return f"{keyword}={_escaped(_content(value).decode(errors='replace'))}"


def _escaped(text: str) -> str:
    """Escapes special characters, and the spaces and carriage returns at both ends."""
    inner = text.strip(" \r")
    begin = text.index(inner) if inner else len(text)
    end = begin + len(inner)
    ends = ("".join(f"\\{each}" for each in part) for part in (text[:begin], text[end:]))
    return inner.translate(_ESCAPES).join(ends)


def _dotted(oid: bytes) -> str:
    numbers, number = list[int](), 0
    for byte in oid:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _content(element: bytes) -> bytes:
    return element[_head_bytes(element, 0) :]


def _parts(content: bytes) -> list[bytes]:
    """Returns the DER elements in the content of another element."""
    return [*_split(content)]


def _split(content: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(content):
        head = _head_bytes(content, start)
        first = content[start + 1]
        length = first if first < 0x80 else int.from_bytes(content[start + 2 : start + head], "big")
        end = start + head + length
        yield content[start:end]
        start = end


def _head_bytes(data: bytes, start: int) -> int:
    """Returns the number of bytes of an element's tag and length. Certificates have no tags of several bytes."""
    first = data[start + 1]
    return 2 if first < 0x80 else 2 + (first & 0x7F)
