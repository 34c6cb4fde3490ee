"""Compiles the layout of a message into plain functions that read and write the message.

A layout (`layouts.Layout`) can read and write the same bytes, but is about 20 times as slow. The source is generated
and executed as in the standard library's `dataclasses`. Consecutive fields of fixed size are one `struct` call. In a
reader, this call also covers the length that follows the fields, or the first byte of a compact length. A reader
usually reads a whole array of structs with only such fields in one call. The code of nested structs is inlined.

A function that meets an unexpected value raises one of `READ_FAILURES` or `WRITE_FAILURES`. The caller then uses the
layout, which reports the error or handles a rare valid value, such as a string that is not UTF-8.

A reader does not check that each value is complete. After a truncated value the position is past the end, so that the
next read or the final check fails.

    print(generated_source(layout(HeartbeatRequest, 4, True)))
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import MISSING
from functools import lru_cache, partial
from io import BytesIO
from typing import Any, Protocol
from uuid import UUID

from construct import Construct, ConstructError

from group_sidecar.codecs import primitives as wire
from group_sidecar.codecs.fast_instances import mutable_twin
from group_sidecar.codecs.layouts import Layout

NO_ELEMENT_LIMIT = 1 << 62
"""A bound that no message reaches: the reader decodes all elements."""


class Reader(Protocol):
    """Reads the instance at position `at`, and returns the instance and its end. `left`: maximum number of elements."""

    def __call__(self, data: bytes, at: int, left: int = ..., /) -> tuple[Any, int]:
        """Reads one instance."""


Writer = Callable[[Any], bytes]

READ_FAILURES = (ConstructError, IndexError, struct.error, UnicodeDecodeError)
"""Exceptions of a reader after which the caller has to use the layout."""
WRITE_FAILURES = (ConstructError, AttributeError, OverflowError, TypeError, ValueError, struct.error)
"""Exceptions of a writer after which the caller has to use the layout."""

_LENGTH_CODES = {wire.SHORT: "h", wire.INT: "i", wire.COMPACT: "B"}
"""The `struct` code of a length. For a compact length, the code of its first byte."""


class ElementLimitExceeded(Exception):
    """The message has more elements, in all arrays and tagged fields together, than the reader may read."""


class _GeneratedFunction:
    """The source of one function so far: its lines, the values that they name, and the pending fields of fixed size."""

    def __init__(self, head: str, names: dict[str, Any]) -> None:
        self.lines = [head]
        self.names = dict(names)
        self.fixed_fields: list[tuple[str, str]] = []
        self._margin = "    "

    def add(self, *lines: str) -> None:
        self.lines += [self._margin + line for line in lines]

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.add(head)
        self._margin += "    "
        yield
        self._margin = self._margin[4:]

    def name(self, kind: str, value: Any) -> str:
        """Returns the expression for a value in the source: its literal if there is one, or else a new name."""
        if type(value) in (int, bool, str, type(None)) or value == ():
            return repr(value)
        name = f"{kind}_{len(self.names)}"
        self.names[name] = value
        return name

    def take_fixed_fields(self) -> tuple[struct.Struct, str]:
        fixed_fields, self.fixed_fields = self.fixed_fields, []
        return struct.Struct(">" + "".join(code for code, _ in fixed_fields)), ", ".join(
            name for _, name in fixed_fields
        )

    def function(self, name: str) -> Any:
        exec(compile("\n".join(self.lines), f"<{name}>", "exec"), self.names)
        return self.names[name]


class _ReaderSource(_GeneratedFunction):
    """Generates the source of a reader.

    Variables in the source: `at` is the position, `n` a length or its first byte, `o0` the instance, `o1` a nested
    instance, and `left` the number of elements that may still follow.
    """

    def __init__(self, layout: Layout) -> None:
        super().__init__(f"def read_{layout.title}(data, at, left={NO_ELEMENT_LIMIT}):", _READER_NAMES)
        self.add("size = len(data)")
        self._struct(layout, 0)
        self.add("if at > size: raise Odd", "return o0, at")

    def _struct(self, layout: Layout, depth: int) -> None:
        this = f"o{depth}"
        self._begin(layout, this)
        for name, construct in layout.plain.items():
            self._value(construct, f"{this}.{name}", depth)
        if layout.flexible:
            self._read_length_code("B")
            with self.block("if n:"):
                self.add("left -= n if n < 128 else uvarint(data, at)[0]", "if left < 0: raise TooMany")
                self.add(f"at = {self.name('tags', layout.fill_tags)}(data, at, {this})")
            self.add("else: at += 1")
        self._flush()
        self._end(layout, this)

    def _begin(self, layout: Layout, this: str) -> None:
        self.add(f"{this} = {self.name('twin', mutable_twin(layout.cls))}()")
        for name, default in layout.defaults.items():
            if name not in layout.plain:
                if default is MISSING:
                    raise TypeError(f"{layout.title}: {name} has no default")
                self.add(f"{this}.{name} = {self.name(name, default)}")

    def _end(self, layout: Layout, this: str) -> None:
        self.add(f"{this}.__class__ = {self.name(layout.cls.__name__, layout.cls)}")

    def _value(self, construct: Construct, target: str, depth: int) -> None:
        inner = f"o{depth + 1}"
        match construct:
            case wire.FixedSize():
                self.fixed_fields.append((_code(construct), target))
            case wire.Uuid():
                self.fixed_fields.append(("16s", target))
            case Layout():
                self._struct(construct, depth + 1)
                if target != inner:
                    self.add(f"{target} = {inner}")
            case wire.NullableStruct():
                self._read_length_code("b")
                self.add(f"{target} = None")
                with self.block("if n >= 0:"):
                    self._value(construct.inner, target, depth)
            case wire.SizedArray():
                self._array(construct, target, depth)
            case _ if construct.length is wire.COMPACT:
                self._compact(construct, target)
            case _:
                self._plain(construct, target)

    def _plain(self, construct: Any, target: str) -> None:
        """Adds code that reads a string or bytes after a length of fixed size."""
        self._read_length_code(_LENGTH_CODES[construct.length])
        with self.block("if n >= 0:"):
            self._contents(construct, target, "at", "at + n")
        self.add(f"else: {target} = None" if construct.nullable else "else: raise Odd")

    def _compact(self, construct: Any, target: str) -> None:
        """Adds code that reads a string or bytes after a varint: the length plus one, which usually takes one byte."""
        longest, empty = (
            (wire.MAX_STRING_BYTES, "''") if isinstance(construct, wire.SizedString) else (0xFFFFFFFF, "b''")
        )
        self._read_length_code("B")
        with self.block("if n > 127:"):
            self.add("n, at = uvarint(data, at)", f"if not 0 < n <= {longest + 1}: raise Odd")
            self._contents(construct, target, "at", "at + n - 1")
        with self.block("elif n > 1:"):
            self._contents(construct, target, "at + 1", "at + n")
        with self.block("elif n:"):
            self.add(f"{target} = {empty}", "at += 1")
        with self.block("else:"):
            self.add(*(f"{target} = None", "at += 1") if construct.nullable else ("raise Odd",))

    def _contents(self, construct: Any, target: str, start: str, end: str) -> None:
        decode = ".decode()" if isinstance(construct, wire.SizedString) else ""
        self.add(f"end = {end}", f"{target} = data[{start}:end]{decode}", "at = end")

    def _array(self, construct: wire.SizedArray, target: str, depth: int) -> None:
        self._read_length_code(_LENGTH_CODES[construct.length])
        if construct.length is wire.COMPACT:
            self.add("if n > 127: n, at = uvarint(data, at)", "else: at += 1", "n -= 1")
        with self.block("if n >= 0:"):
            self.add("if n > size - at: raise Odd", "left -= n", "if left < 0: raise TooMany")
            self._elements(construct.element, target, depth)
        self.add(f"else: {target} = None" if construct.nullable else "else: raise Odd")

    def _elements(self, element: Construct, target: str, depth: int) -> None:
        items, item = f"l{depth}", f"o{depth + 1}"
        if isinstance(element, wire.FixedSize):
            self.add(f"{target} = unpack(f'>{{n}}{_code(element)}', data, at)", f"at += n * {element.format.size}")
            return
        self.add(f"{items} = []")
        rows = isinstance(element, Layout) and element.plain and all(map(_is_fixed, element.plain.values()))
        if rows:
            self._fixed_size_structs(element, items, item)
        with self.block("else:") if rows else nullcontext(), self.block("for _ in range(n):"):
            self._value(element, item, depth)
            self._flush()
            self.add(f"{items}.append({item})")
        self.add(f"{target} = tuple({items})")

    def _fixed_size_structs(self, element: Layout, items: str, item: str) -> None:
        """Adds code that reads all structs of an array, which have only fields of fixed size, in one call.

        The code runs if the array is complete and no struct has tagged fields.
        """
        codes = [_code(each) if isinstance(each, wire.FixedSize) else "16s" for each in element.plain.values()]
        row = struct.Struct(">" + "".join(codes) + "x" * element.flexible)
        self.add(f"end = at + n * {row.size}")
        whole = f"data[at + {row.size - 1}:end:{row.size}].count(0) == n" if element.flexible else "end <= size"
        values = [f"v{number}" for number in range(len(codes))]
        with self.block(f"if {whole}:"):
            with self.block(f"for {', '.join(values)}, in {self.name('rows', row.iter_unpack)}(data[at:end]):"):
                self._begin(element, item)
                for name, value, code in zip(element.plain, values, codes, strict=True):
                    self.add(f"{item}.{name} = " + (f"uuid({value})" if code == "16s" else value))
                self._end(element, item)
                self.add(f"{items}.append({item})")
            self.add("at = end")

    def _read_length_code(self, code: str) -> None:
        """Adds code that reads all pending fields of fixed size, and then a length into `n`.

        For a compact length (code B), `n` gets only the first byte, and `at` stays at that byte. For any other length,
        `at` moves past the length.
        """
        self.fixed_fields.append((code, "n"))
        self._flush(stay=code == "B")

    def _flush(self, *, stay: bool = False) -> None:
        uuids = [target for code, target in self.fixed_fields if code == "16s"]
        fields, targets = self.take_fixed_fields()
        if stay and fields.size == 1:
            self.add("n = data[at]")
        elif targets:
            self.add(f"[{targets}] = {self.name('unpack', fields.unpack_from)}(data, at)  # {fields.format}")
            self.add(f"at += {fields.size - stay}", *(f"{target} = uuid({target})" for target in uuids))


class _WriterSource(_GeneratedFunction):
    """Generates the source of a writer.

    Variables in the source: `out` is the list of parts, `x` a value, `n` its length, `o0` the instance, `o1` a nested
    instance.
    """

    def __init__(self, layout: Layout) -> None:
        super().__init__(f"def write_{layout.title}(o0):", _WRITER_NAMES)
        self.add("out = []")
        self._struct(layout, 0)
        self.add("return b''.join(out)")

    def _struct(self, layout: Layout, depth: int) -> None:
        this = f"o{depth}"
        for name, construct in layout.plain.items():
            self._value(construct, f"{this}.{name}", depth)
        self._flush()
        if layout.flexible:
            non_default_tags = [
                f"{this}.{name} != {self.name(name, layout.defaults[name])}" for name, _ in layout.tagged.values()
            ]
            tags = self.name("tags", layout.tags)
            self.add(
                f"out.append({tags}({this}) if {' or '.join([f'{this}.unknown_tags', *non_default_tags])} else b'\\0')"
            )

    def _value(self, construct: Construct, value: str, depth: int) -> None:
        inner = f"o{depth + 1}"
        match construct:
            case wire.FixedSize():
                self.fixed_fields.append((_code(construct), value))
            case wire.Uuid():
                self.fixed_fields.append(("16s", f"{value}.bytes"))
            case Layout():
                if value != inner:
                    self.add(f"{inner} = {value}")
                self._struct(construct, depth + 1)
            case wire.NullableStruct():
                self._flush()
                self.add(f"out.append(b'\\xff' if {value} is None else b'\\1')")
                with self.block(f"if {value} is not None:"):
                    self._value(construct.inner, value, depth)
            case _:
                self._sized(construct, value, depth)

    def _sized(self, construct: Any, value: str, depth: int) -> None:
        self._flush()
        self.add(f"x = {value}")
        code = _LENGTH_CODES[construct.length]
        if construct.nullable:
            self.add(f"if x is None: out.append(null_{code})")
        with self.block("else:") if construct.nullable else nullcontext():
            if isinstance(construct, wire.SizedString):
                self.add("x = x.encode()", f"if len(x) > {wire.MAX_STRING_BYTES}: raise Odd")
            self.add("n = len(x)", f"out.append(short_{code}[n] if n < 127 else long_{code}(n))")
            self._contents(construct, depth)

    def _contents(self, construct: Any, depth: int) -> None:
        match construct:
            case wire.SizedArray(element=wire.FixedSize() as element):
                self.add(f"out.append(pack(f'>{{n}}{_code(element)}', *x))")
            case wire.SizedArray(element=element):
                with self.block(f"for o{depth + 1} in x:"):
                    self._value(element, f"o{depth + 1}", depth)
                    self._flush()
            case _:
                self.add("out.append(x)")

    def _flush(self) -> None:
        fields, values = self.take_fixed_fields()
        if values:
            self.add(f"out.append({self.name('pack', fields.pack)}({values}))  # {fields.format}")


def generated_source(layout: Layout) -> str:
    """Returns the source of the generated reader and writer, for people."""
    return "\n".join((*_ReaderSource(layout).lines, "", *_WriterSource(layout).lines))


def compile_reader(layout: Layout) -> Reader:
    """Returns the reader of a layout.

    The reader raises one of `READ_FAILURES` if the caller has to use the layout. The reader raises ElementLimitExceeded
    if the message has too many elements.
    """
    read: Reader = _ReaderSource(layout).function(f"read_{layout.title}")
    return read


def compile_writer(layout: Layout) -> Writer:
    """Returns the writer of a layout. The writer raises one of `WRITE_FAILURES` if the caller has to use the layout."""
    write: Writer = _WriterSource(layout).function(f"write_{layout.title}")
    return write


@lru_cache(maxsize=1024)
def _uuid(raw: bytes) -> UUID:
    return UUID(bytes=raw)


def _uvarint(data: bytes, at: int) -> tuple[int, int]:
    """Returns an unsigned varint of more than one byte, and where it ends.

    Bits above the 32nd are kept. A length with such bits exceeds the data, so the reader fails. The caller then uses
    the layout, which drops these bits.
    """
    value = data[at] & 0x7F
    for shift in range(7, 7 * wire.MAX_UVARINT_BYTES, 7):
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
    raise wire.WireError("varint longer than 32 bits")


def _length(length: wire.Length, number: int) -> bytes:
    stream = BytesIO()
    length.write(stream, number)
    return stream.getvalue()


def _code(construct: wire.FixedSize) -> str:
    return construct.format.format[1:]


def _is_fixed(construct: Construct) -> bool:
    return isinstance(construct, wire.FixedSize | wire.Uuid)


_READER_NAMES = {
    "Odd": wire.WireError,
    "TooMany": ElementLimitExceeded,
    "uuid": _uuid,
    "uvarint": _uvarint,
    "unpack": struct.unpack_from,
}
_WRITER_NAMES: dict[str, Any] = {"Odd": wire.WireError, "pack": struct.pack}
# `null_*` is the encoding of null. `short_*` has the encodings of the lengths below 127. `long_*` encodes any length.
for (
    _each,
    _read_length_code,
) in _LENGTH_CODES.items():
    _WRITER_NAMES |= {
        f"null_{_read_length_code}": _length(_each, -1),
        f"long_{_read_length_code}": partial(_length, _each),
    }
    _WRITER_NAMES |= {f"short_{_read_length_code}": [_length(_each, number) for number in range(127)]}
