"""Java's properties files and JAAS configurations, parsed as Java and Kafka parse them."""

import pytest

from group_sidecar.proxy.commandline.java_properties import parse_login_module, parse_properties
from tests.proxy.commandline.client_files import FILES, LOGINS, PLAIN, Case, JaasCase, as_property


@pytest.mark.parametrize("case", FILES, ids=lambda case: repr(case.content[:30]))
def test_properties_as_java_reads_them(case: Case) -> None:
    """A file has the values that Java reads from it, or raises ValueError if Java refuses the file."""
    if case.values is None:
        with pytest.raises(ValueError, match="hexadecimal"):
            parse_properties(case.content)
    else:
        assert parse_properties(case.content) == case.values


@pytest.mark.parametrize("case", LOGINS, ids=lambda case: repr(case.text[-30:]))
def test_login_module_as_kafka_reads_it(case: JaasCase) -> None:
    """A JAAS configuration has the options that Kafka reads from it, or raises ValueError if Kafka refuses the text."""
    text = parse_properties(as_property(case.text))["sasl.jaas.config"]
    assert text == case.text
    if case.options is None:
        with pytest.raises(ValueError, match="must"):
            parse_login_module(text)
    else:
        module = parse_login_module(text)
        assert module.name.startswith(PLAIN.rpartition(".")[0][:30])
        assert module.options == case.options


def test_error_hides_password() -> None:
    """The error of a malformed JAAS configuration contains no part of the configuration."""
    with pytest.raises(ValueError, match="quotes") as raised:
        parse_login_module(f'{PLAIN} required username="alice" password=secret!;')
    assert not any(word in str(raised.value) for word in ("alice", "secret"))
