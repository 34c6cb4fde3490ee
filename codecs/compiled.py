"""A layout written out as plain functions, compiled once: what reads and writes group traffic.

Owns: the source of a reader and of a writer. Must not know: declarations and versions, nor how an error is told.

The source is made and run in the way of the standard library's dataclasses. Fields of fixed size that follow each other
are one `struct` call, together with the first bytes of the length behind them; so is mostly a whole array of structs
that have no other fields. Structs inside stand in line. Where a function comes upon anything odd it raises one of `ODD`
or `UNFIT`, and the caller asks the layout: for the error, or for the rare value that is right all the same (a string
that is not UTF-8). A reader does not look whether each value is all there: behind one that is cut off the position is
past the end, where every read fails, as does the last check.

    print(source(layout(HeartbeatRequest, 4, True)))
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
from group_sidecar.codecs.instances import twin
from group_sidecar.codecs.layouts import Layout

NO_BOUND = 1 << 62
"""A bound on elements that no message reaches: the reader decodes all of them."""


class Reader(Protocol):
    """Reads an instance that begins at a position; gives it, and where it ends. `left`: most elements."""

    def __call__(self, data: bytes, at: int, left: int = ..., /) -> tuple[Any, int]:
        """See Reader."""


Writer = Callable[[Any], bytes]

ODD = (ConstructError, IndexError, struct.error, UnicodeDecodeError)
"""What a reader raises where the layout has to look."""
UNFIT = (ConstructError, AttributeError, OverflowError, TypeError, ValueError, struct.error)
"""What a writer raises likewise."""

_HEADS = {wire.SHORT: "h", wire.INT: "i", wire.COMPACT: "B"}
"""The `struct` code of a length; of a compact one, of its first byte."""


class TooMany(Exception):
    """A reader came upon more elements, of all arrays and tagged fields together, than it was to read."""


class _Source:
    """A function's lines, the values that they name, and the fields of fixed size that are not yet in the lines."""

    def __init__(self, head: str, names: dict[str, Any]) -> None:
        self.lines = [head]
        self.names = dict(names)
        self.run: list[tuple[str, str]] = []
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
        """What a value is called in the source: a name of its own, or itself where it can be written."""
        if type(value) in (int, bool, str, type(None)) or value == ():
            return repr(value)
        name = f"{kind}_{len(self.names)}"
        self.names[name] = value
        return name

    def take_run(self) -> tuple[struct.Struct, str]:
        run, self.run = self.run, []
        return struct.Struct(">" + "".join(code for code, _ in run)), ", ".join(name for _, name in run)

    def function(self, name: str) -> Any:
        exec(compile("\n".join(self.lines), f"<{name}>", "exec"), self.names)
        return self.names[name]


class _ReaderSource(_Source):
    """In the source `at` is the position, `n` a length or a head's byte, `o0` the instance, `o1` one inside it, `left`
    how many elements may still come.
    """

    def __init__(self, layout: Layout) -> None:
        super().__init__(f"def read_{layout.title}(data, at, left={NO_BOUND}):", _READING)
        self.add("size = len(data)")
        self._struct(layout, 0)
        self.add("if at > size: raise Odd", "return o0, at")

    def _struct(self, layout: Layout, depth: int) -> None:
        this = f"o{depth}"
        self._begin(layout, this)
        for name, construct in layout.plain.items():
            self._value(construct, f"{this}.{name}", depth)
        if layout.flexible:
            self._head("B")
            with self.block("if n:"):
                self.add("left -= n if n < 128 else uvarint(data, at)[0]", "if left < 0: raise TooMany")
                self.add(f"at = {self.name('tags', layout.fill_tags)}(data, at, {this})")
            self.add("else: at += 1")
        self._flush()
        self._end(layout, this)

    def _begin(self, layout: Layout, this: str) -> None:
        self.add(f"{this} = {self.name('twin', twin(layout.cls))}()")
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
            case wire.Fixed():
                self.run.append((_code(construct), target))
            case wire.Uuid():
                self.run.append(("16s", target))
            case Layout():
                self._struct(construct, depth + 1)
                if target != inner:
                    self.add(f"{target} = {inner}")
            case wire.NullableStruct():
                self._head("b")
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
        """A string or bytes behind a length of fixed size."""
        self._head(_HEADS[construct.length])
        with self.block("if n >= 0:"):
            self._contents(construct, target, "at", "at + n")
        self.add(f"else: {target} = None" if construct.nullable else "else: raise Odd")

    def _compact(self, construct: Any, target: str) -> None:
        """A string or bytes behind a varint that is one more than their length, and mostly of one byte."""
        longest, empty = (
            (wire.MAX_STRING_BYTES, "''") if isinstance(construct, wire.SizedString) else (0xFFFFFFFF, "b''")
        )
        self._head("B")
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
        self._head(_HEADS[construct.length])
        if construct.length is wire.COMPACT:
            self.add("if n > 127: n, at = uvarint(data, at)", "else: at += 1", "n -= 1")
        with self.block("if n >= 0:"):
            self.add("if n > size - at: raise Odd", "left -= n", "if left < 0: raise TooMany")
            self._elements(construct.element, target, depth)
        self.add(f"else: {target} = None" if construct.nullable else "else: raise Odd")

    def _elements(self, element: Construct, target: str, depth: int) -> None:
        items, item = f"l{depth}", f"o{depth + 1}"
        if isinstance(element, wire.Fixed):
            self.add(f"{target} = unpack(f'>{{n}}{_code(element)}', data, at)", f"at += n * {element.format.size}")
            return
        self.add(f"{items} = []")
        rows = isinstance(element, Layout) and element.plain and all(map(_is_fixed, element.plain.values()))
        if rows:
            self._rows(element, items, item)
        with self.block("else:") if rows else nullcontext(), self.block("for _ in range(n):"):
            self._value(element, item, depth)
            self._flush()
            self.add(f"{items}.append({item})")
        self.add(f"{target} = tuple({items})")

    def _rows(self, element: Layout, items: str, item: str) -> None:
        """Structs of one size, if all are there and none has tagged fields."""
        codes = [_code(each) if isinstance(each, wire.Fixed) else "16s" for each in element.plain.values()]
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

    def _head(self, code: str) -> None:
        """Reads what decides how it goes on, and all before it. A single byte is not left behind: `at` is there."""
        self.run.append((code, "n"))
        self._flush(stay=code == "B")

    def _flush(self, *, stay: bool = False) -> None:
        uuids = [target for code, target in self.run if code == "16s"]
        fields, targets = self.take_run()
        if stay and fields.size == 1:
            self.add("n = data[at]")
        elif targets:
            self.add(f"[{targets}] = {self.name('unpack', fields.unpack_from)}(data, at)  # {fields.format}")
            self.add(f"at += {fields.size - stay}", *(f"{target} = uuid({target})" for target in uuids))


class _WriterSource(_Source):
    """In the source `out` are the parts, `x` a value, `n` its length, `o0` the instance, `o1` one inside it."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(f"def write_{layout.title}(o0):", _WRITING)
        self.add("out = []")
        self._struct(layout, 0)
        self.add("return b''.join(out)")

    def _struct(self, layout: Layout, depth: int) -> None:
        this = f"o{depth}"
        for name, construct in layout.plain.items():
            self._value(construct, f"{this}.{name}", depth)
        self._flush()
        if layout.flexible:
            said = [f"{this}.{name} != {self.name(name, layout.defaults[name])}" for name, _ in layout.tagged.values()]
            tags = self.name("tags", layout.tags)
            self.add(f"out.append({tags}({this}) if {' or '.join([f'{this}.unknown_tags', *said])} else b'\\0')")

    def _value(self, construct: Construct, value: str, depth: int) -> None:
        inner = f"o{depth + 1}"
        match construct:
            case wire.Fixed():
                self.run.append((_code(construct), value))
            case wire.Uuid():
                self.run.append(("16s", f"{value}.bytes"))
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
        code = _HEADS[construct.length]
        if construct.nullable:
            self.add(f"if x is None: out.append(null_{code})")
        with self.block("else:") if construct.nullable else nullcontext():
            if isinstance(construct, wire.SizedString):
                self.add("x = x.encode()", f"if len(x) > {wire.MAX_STRING_BYTES}: raise Odd")
            self.add("n = len(x)", f"out.append(short_{code}[n] if n < 127 else long_{code}(n))")
            self._contents(construct, depth)

    def _contents(self, construct: Any, depth: int) -> None:
        match construct:
            case wire.SizedArray(element=wire.Fixed() as element):
                self.add(f"out.append(pack(f'>{{n}}{_code(element)}', *x))")
            case wire.SizedArray(element=element):
                with self.block(f"for o{depth + 1} in x:"):
                    self._value(element, f"o{depth + 1}", depth)
                    self._flush()
            case _:
                self.add("out.append(x)")

    def _flush(self) -> None:
        fields, values = self.take_run()
        if values:
            self.add(f"out.append({self.name('pack', fields.pack)}({values}))  # {fields.format}")


def source(layout: Layout) -> str:
    """The source of both, to look at."""
    return "\n".join((*_ReaderSource(layout).lines, "", *_WriterSource(layout).lines))


def reader(layout: Layout) -> Reader:
    """Compiles what reads an instance. It raises one of `ODD` where the layout has to look, and TooMany."""
    read: Reader = _ReaderSource(layout).function(f"read_{layout.title}")
    return read


def writer(layout: Layout) -> Writer:
    """Compiles what writes an instance. It raises one of `UNFIT` where the layout has to look."""
    write: Writer = _WriterSource(layout).function(f"write_{layout.title}")
    return write


@lru_cache(maxsize=1024)
def _uuid(raw: bytes) -> UUID:
    return UUID(bytes=raw)


def _uvarint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned varint of more than one byte, and where it ends.

    Bits above the 32nd are kept: no data is so long, so the layout has to look, and drops them.
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


def _code(construct: wire.Fixed) -> str:
    return construct.format.format[1:]


def _is_fixed(construct: Construct) -> bool:
    return isinstance(construct, wire.Fixed | wire.Uuid)


_READING = {"Odd": wire.WireError, "TooMany": TooMany, "uuid": _uuid, "uvarint": _uvarint, "unpack": struct.unpack_from}
_WRITING: dict[str, Any] = {"Odd": wire.WireError, "pack": struct.pack}
for _each, _head in _HEADS.items():  # Null, the lengths of nearly all strings and arrays, and any other.
    _WRITING |= {f"null_{_head}": _length(_each, -1), f"long_{_head}": partial(_length, _each)}
    _WRITING |= {f"short_{_head}": [_length(_each, number) for number in range(127)]}
