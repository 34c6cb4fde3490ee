"""Parses two formats of Kafka's client properties: Java's `.properties` files, and entries of a JAAS configuration.

The module accepts what `java.util.Properties.load` and Kafka's `JaasConfig` accept.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_LINE_ENDS = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"
_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|u|.)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

_JAAS_TOKEN = re.compile(
    r"""(?P<skipped>[\x00-\x20]+|/\*.*?\*/|/[^\r\n]*)
      |(?P<quote>["'])(?P<quoted>(?:\\.|(?!(?P=quote))[^\\\r\n])*)(?P=quote)?
      |(?P<word>[A-Za-z_$\u00a0-\U0010ffff][\w$.\u00a0-\U0010ffff-]*)
      |(?P<other>[0-9.]+|.)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
"""A token of Java's `StreamTokenizer` as Kafka sets it up. A word does not begin with a digit, a dot or a hyphen."""
_JAAS_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_CONTROL_FLAGS = ("required", "requisite", "sufficient", "optional")
"""What follows the name of a login module (`javax.security.auth.login.Configuration`)."""
_OPTIONS_AT, _OPTION_TOKENS = 2, 3
"""The position of the first option's tokens, and how many tokens an option has: NAME, =, VALUE."""
_JAAS_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class LoginModule(NamedTuple):
    """An entry of a JAAS configuration: the name of a class, and its options."""

    name: str
    options: dict[str, str]


def parse_properties(content: bytes) -> dict[str, str]:
    r"""Returns the properties of a file. The last value of a key counts.

    Java reads such files as ISO 8859-1. All other characters are written as `\uXXXX`.

    Raises:
        ValueError: an escape is malformed. The text is one clause.
    """
    found = {}
    for line in _logical_lines(content.decode("iso-8859-1")):
        key = _KEY.match(line)
        assert key is not None  # The expression matches the empty text too.
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None
        found[_unescaped(key[0])] = _unescaped(line[separator.end() :])
    return found


def parse_login_module(text: str) -> LoginModule:
    """Returns the only entry of a JAAS configuration, as `sasl.jaas.config` contains it.

    Raises:
        ValueError: the text is not such an entry. The text of the error is one clause, without parts of the entry.
    """
    tokens = [*_jaas_tokens(text)]
    if ";" not in tokens:
        raise ValueError("must end with a semicolon")
    entry = tokens[: tokens.index(";")]
    if len(entry) < len(tokens) - 1:
        raise ValueError("must have only one login module")
    if len(entry) < _OPTIONS_AT or entry[1].lower() not in _CONTROL_FLAGS:
        raise ValueError("must begin with a login module and 'required'")
    options = {}
    for at in range(_OPTIONS_AT, len(entry), _OPTION_TOKENS):
        match entry[at : at + _OPTION_TOKENS]:
            case [_Word() as key, "=", _Word() as value]:
                options[str(key)] = str(value)
            case _:
                raise ValueError("each option must be NAME=VALUE, with quotes around values that are no names")
    return LoginModule(str(entry[0]), options)


class _Word(str):
    """A word or a quoted text, in contrast to punctuation and numbers."""

    __slots__ = ()


def _logical_lines(text: str) -> Iterator[str]:
    """Yields each line with its continuation lines, without leading blanks. Leaves out comments and empty lines."""
    lines = iter(_LINE_ENDS.split(text))
    for line in lines:
        whole = line.lstrip(_BLANKS)
        if not whole or whole[0] in "#!":
            continue
        while _is_continued(whole):
            whole = whole[:-1] + next(lines, "").lstrip(_BLANKS)
        yield whole


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        escaped = found[1]
        if escaped == "u":
            raise ValueError("a \\u is not followed by four hexadecimal digits")
        return chr(int(escaped[1:], 16)) if len(escaped) > 1 else _LETTERS.get(escaped, escaped)

    replaced = _ESCAPE.sub(character, text)
    # Java writes a character beyond U+FFFF as two escapes.
    return replaced.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _jaas_tokens(text: str) -> Iterator[str]:
    for token in _JAAS_TOKEN.finditer(text):
        if token["quote"]:
            yield _Word(_JAAS_ESCAPE.sub(_jaas_character, token["quoted"]))
        elif token["word"]:
            yield _Word(token["word"])
        elif token["other"]:
            yield token["other"]


def _jaas_character(found: re.Match[str]) -> str:
    escaped = found[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _JAAS_LETTERS.get(escaped, escaped)
