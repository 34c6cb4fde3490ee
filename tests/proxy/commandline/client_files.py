"""Properties files of Kafka's clients, with the values that Java reads from them.

`tests/conformance/test_command_config.py` compares the table with Kafka's own classes.
"""

from typing import NamedTuple

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


class Case(NamedTuple):
    """The content of a file, and its values. `values` is None if Java refuses the file."""

    content: bytes
    values: dict[str, str] | None


class JaasCase(NamedTuple):
    """A JAAS configuration, and the options of its login module. `options` is None if Kafka refuses the text."""

    text: str
    options: dict[str, str] | None


FILES = [
    Case(b"", {}),
    Case(b"# a comment\n! another\n\n   \t\n  # a third\n", {}),
    Case(b"a=1\nb:2\nc 3\nd = 4\ne : 5\nf\t\t6\ng\n", {**{key: str(n) for n, key in enumerate("abcdef", 1)}, "g": ""}),
    Case(b"a==b\nc = :d\ne  :  = f", {"a": "=b", "c": ":d", "e": "= f"}),
    Case(b"a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
    Case(b"a=1\na=2", {"a": "2"}),
    Case(b"  a=b  \n", {"a": "b  "}),
    Case(b"a=b \\\n   c \\\r\n\td", {"a": "b c d"}),
    Case(b"a=b\\\\\nc=d\\\\\\\n  e", {"a": "b\\", "c": "d\\e"}),
    Case(b"a=b\\\n\nc=d\\", {"a": "b", "c": "d"}),
    Case(b"# not continued \\\na=b\nc=d\\\n# e", {"a": "b", "c": "d# e"}),
    Case(b"a\\ b\\:c\\=d=e", {"a b:c=d": "e"}),
    Case(rb"a=\t\n\r\f\q\"\\", {"a": '\t\n\r\fq"\\'}),
    Case(rb"a=\u00e9\uD83D\uDE00\u003d", {"a": "é😀="}),
    Case(rb"a=\u00g1", None),
    Case(rb"a=\u12", None),
    Case("a=é".encode("iso-8859-1"), {"a": "é"}),
    Case("a=é".encode(), {"a": "Ã©"}),
    Case(b"=b\n:c", {"": "c"}),
]

LOGINS = [
    JaasCase(f'{PLAIN} required username="u" password="p";', {"username": "u", "password": "p"}),
    JaasCase(f"{SCRAM} required\n  username='u'\n  password='p' ;", {"username": "u", "password": "p"}),
    JaasCase(f"{PLAIN} REQUIRED username=u password=p1-_$.x;", {"username": "u", "password": "p1-_$.x"}),
    JaasCase(f"{PLAIN} optional username = u password\t=\tp;", {"username": "u", "password": "p"}),
    JaasCase(rf'{PLAIN} required password="a\"b\\c\td\101\0";', {"password": 'a"b\\c\tdA\0'}),
    JaasCase(f"{PLAIN} required password='a\"b; // = #';", {"password": 'a"b; // = #'}),
    JaasCase(f"{PLAIN} required password='' username=é€;", {"password": "", "username": "é€"}),
    JaasCase(f"{PLAIN} required // a comment\n/* and\nanother */ a='b' /c\n;", {"a": "b"}),
    JaasCase(f"{PLAIN} required a='1' a='2';", {"a": "2"}),
    JaasCase(f"{PLAIN} required;", {}),
    JaasCase(f"{PLAIN} required password=123;", None),
    JaasCase(f"{PLAIN} required password=1a;", None),
    JaasCase(f"{PLAIN} required password=-a;", None),
    JaasCase(f"{PLAIN} required password=a!;", None),
    JaasCase(f"{PLAIN} required password;", None),
    JaasCase(f"{PLAIN} required password=;", None),
    JaasCase(f"{PLAIN} required password='p'", None),
    JaasCase(f"{PLAIN} password='p';", None),
    JaasCase(f"{PLAIN} required a='b'; {SCRAM} required;", None),
    JaasCase(";", None),
    JaasCase("required", None),
]
"""Each text has no characters that a properties file would treat specially, except backslashes."""


def as_property(text: str) -> bytes:
    """Returns a properties file with this text as `sasl.jaas.config`."""
    escaped = "".join(f"\\u{ord(letter):04x}" if ord(letter) > 126 or letter in "\n\\" else letter for letter in text)
    return f"sasl.jaas.config={escaped}\n".encode("ascii")
