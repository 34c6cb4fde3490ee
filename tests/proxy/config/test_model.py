"""Tests the settings with their defaults, and the lines for invalid ones."""

import socket
from collections.abc import Iterator
from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel, ValidationError

from group_sidecar.proxy.config.errors import section_of
from group_sidecar.proxy.config.loading import load_config
from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.runtime.addresses import Address
from tests.proxy.config.loaded_settings import LEAST, faults


def test_minimal_config_has_defaults(write: Any) -> None:
    """Settings with only listen and upstream have all defaults."""
    config = load_config(write(LEAST))
    assert config.listen == Address("127.0.0.1", 9092)
    assert config.upstream == Address("broker", 9092)
    assert config.admin is None
    assert config.sidecar_id == f"{socket.gethostname()}:9092"
    assert config.mode == "sidecar"
    assert config.enabled_policies() == []
    assert config.journal is None
    assert config.limits.idle_seconds == 900
    assert config.advertised_host == "127.0.0.1"


def test_config_is_immutable() -> None:
    """Loaded settings cannot be changed."""
    config = load_config(flags=LEAST)
    with pytest.raises(ValidationError):
        config.listen = Address("elsewhere", 1)
    with pytest.raises(ValidationError):
        config.limits.connections = 1


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"policies": {"group_max_size": {"limit": 0}}}, "policies.group_max_size.limit: must be at least 1"),
        ({"policies": {"group_max_size": {"limit": "many"}}}, "policies.group_max_size.limit: must be a whole number"),
        (
            {"policies": {"group_max_size": {}}},
            "policies.group_max_size: needs limit, consumer_max_size or an override",
        ),
        (
            {"policies": {"group_max_size": {"limit": 1, "error_code": 78}}},
            "policies.group_max_size.error_code: must be 77 or 81",
        ),
        ({"policies": {"group_max_siez": {}}}, "policies.group_max_siez: unknown key; did you mean group_max_size?"),
        ({"policies": {5: {}}}, "policies.5: unknown key"),
        ({"policies": None}, "policies: must be a mapping of keys"),
        ({"policies": {"offset_metadata_max_bytes": {}}}, "policies.offset_metadata_max_bytes.limit: is required"),
        (
            {"policies": {"offset_metadata_max_bytes": {"limit": -1}}},
            "policies.offset_metadata_max_bytes.limit: must be at least 0",
        ),
        ({"answers": {"apis": "ListGroups"}}, "answers.apis: must be a list"),
        ({"lisen": "a:1"}, "lisen: unknown key; did you mean listen?"),
        ({"brokers": 3}, "brokers: unknown key"),
        ({"tls": {}}, "tls: unknown key; did you mean listeners[].tls or own_connection.tls?"),
        ({"gateway": 5}, "gateway: must be a mapping of keys"),
        ({"listen": "here"}, "listen: must be HOST:PORT, for instance 127.0.0.1:9092"),
        ({"admin": 9091}, "admin: must be HOST:PORT, for instance 127.0.0.1:9092"),
        ({"upstream": "broker:0"}, "upstream: the port must be at least 1"),
        ({"upstream": LEAST["listen"]}, "upstream: is the sidecar's own listen address"),
        ({"admin": LEAST["listen"]}, "admin: is the sidecar's own listen address"),
        ({"mode": "proxy"}, "mode: must be 'sidecar' or 'gateway'"),
        ({"sidecar_id": ""}, "sidecar_id: must not be empty"),
        ({"sidecar_id": 5}, "sidecar_id: must be text"),
        ({"answers": {"enabled": "perhaps"}}, "answers.enabled: must be true or false"),
        ({"limits": {"idle_seconds": -1}}, "limits.idle_seconds: must be at least 0"),
        ({"limits": {"idle_seconds": "long"}}, "limits.idle_seconds: must be a number"),
        ({"limits": {"largest_frame": 1 << 31}}, "limits.largest_frame: must be at most 2147483647"),
        ({"journal": {"folder": 5}}, "journal.folder: must be a path"),
        ({"journal": {"interval_seconds": 5}}, "journal: needs a folder or a topic"),
        *(
            (
                {"journal": {"topic": topic}},
                "journal.topic: must be the name of a topic: letters, digits, '.', '_' and '-', 249 at most",
            )
            for topic in ("", "a b", ".", "..", "t" * 250, "t\n")
        ),
        ({"journal": {"topic": "t", "topic_batch_bytes": 1023}}, "journal.topic_batch_bytes: must be at least 1024"),
        ({"journal": {"folder": "f", "retention_seconds": 0}}, "journal.retention_seconds: must be at least 1"),
        *(
            ({"journal": {"folder": "f", name: 1e-300}}, f"journal.{name}: must be at least {least}")
            for name, least in (("interval_seconds", "0.1"), ("segment_seconds", "0.1"), ("retention_seconds", "1"))
        ),
        ({"limits": {"stalled_seconds": 1e-300}}, "limits.stalled_seconds: must be at least 1"),
        ({"limits": {"idle_seconds": 1e-300}}, "limits.idle_seconds: must be 0 or at least 1"),
        ({"limits": {"handshake_seconds": 0}}, "limits.handshake_seconds: must be at least 1"),
        ({"limits": {"authentication_seconds": 0.5}}, "limits.authentication_seconds: must be 0 or at least 1"),
        ({"limits": {"connections_per_address": -1}}, "limits.connections_per_address: must be at least 0"),
        ({"limits": {"in_flight_requests": 4}}, "limits.in_flight_requests: must be at least 5"),
        ({"limits": {"kept_bytes": 16_383}}, "limits.kept_bytes: must be at least 16384"),
        ({"limits": {"buffered_bytes": 1_048_575}}, "limits.buffered_bytes: must be at least 1.04858e+06"),
        ({"limits": {"reply_seconds": 0.5}}, "limits.reply_seconds: must be 0 or at least 1"),
        (
            {"journal": {"folder": "f", "segment_bytes": 10, "total_bytes": 19}},
            "journal.total_bytes: must be at least twice segment_bytes",
        ),
        (
            {"journal": {"folder": "f", "segment_bytes": 1 << 30}},
            "journal.total_bytes: must be at least twice segment_bytes",
        ),
        (
            {"mode": "gateway", "listen": "0.0.0.0:9092"},
            "gateway.advertise: is required where listen is 0.0.0.0:9092",
        ),
        (
            {"gateway": {"advertise": "b-{node}-{node}"}},
            "gateway.advertise: may have {node} once, and no other braces",
        ),
        (
            {"gateway": {"advertise": "x" * 60 + "{node}"}},
            "gateway.advertise: must be a host name with {node} in it, for instance broker-{node}.kafka.example",
        ),
        ({"gateway": {"strict_ports": True}}, "gateway: strict_ports: needs first_port"),
        ({"gateway": {"bootstrap_servers": ["b:0"]}}, "gateway.bootstrap_servers.0: the port must be at least 1"),
        (
            {"mode": "gateway", "gateway": {"bootstrap_servers": ["other:9092", LEAST["listen"]]}},
            "gateway.bootstrap_servers: has the sidecar's own listen address",
        ),
        (
            {"gateway": {"one_port": True, "advertise": "b-{node}", "bootstrap_names": ["b-2"]}},
            "gateway: bootstrap_names: b-2 is the name of the broker with node id 2",
        ),
        (
            {"gateway": {"one_port": True, "advertise": "b-{node}", "bootstrap_names": ["192.0.2.1"]}},
            "gateway: bootstrap_names: 192.0.2.1 is an IP address, and no client asks for it by name",
        ),
        (
            {"mode": "gateway", "gateway": {"one_port": True, "advertise": "b-{node}", "bootstrap_names": ["k"]}},
            "gateway.one_port: needs a listener with tls, which shows the names",
        ),
    ],
)
def test_fault_names_file_and_path(write: Any, settings: dict[str, Any], line: str) -> None:
    """An invalid setting is one line with its file and its path."""
    assert faults(write({**LEAST, **settings})) == [f"sidecar.yaml: {line}"]


def numbers(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields the path of each numeric setting outside lists, and the text for a wrong value."""
    for name, field in model.model_fields.items():
        path = (*above, name)
        kinds = {kind for part in (field.annotation, *get_args(field.annotation)) for kind in (part, *get_args(part))}
        if (section := section_of(field.annotation)) is not None and get_origin(field.annotation) is not tuple:
            yield from numbers(section, path)
        elif bool not in kinds and kinds & {int, float}:
            yield path, "a number" if float in kinds else "a whole number"


def test_true_is_not_a_number(write: Any) -> None:
    """Every numeric setting refuses true, which Python would take for 1."""
    found = list(numbers(Config))
    assert (("limits", "groups"), "a whole number") in found
    assert (("answers", "verify"), "a number") in found
    assert (("policies", "group_max_size", "limit"), "a whole number") in found
    for path, kind in found:
        settings: Any = True
        for name in reversed(path):
            settings = {name: settings}
        assert f"sidecar.yaml: {'.'.join(path)}: must be {kind}" in faults(write({**LEAST, **settings}))


@pytest.mark.parametrize("seconds", [0, 1, 900.5])
def test_timeout_of_zero_or_a_second(seconds: float) -> None:
    """A timeout may be zero or at least one second."""
    limits = load_config(flags={**LEAST, "limits": {"idle_seconds": seconds, "reply_seconds": seconds}}).limits
    assert (limits.idle_seconds, limits.reply_seconds) == (seconds, seconds)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"limit": -1}, "limit: must be at least 1"),
        ({"limit": 1 << 31}, "limit: must be at most 2147483647"),
        ({"limit": True}, "limit: must be a whole number"),
        ({"limit": 1.5}, "limit: must be a whole number"),
        ({"limit": float("nan")}, "limit: must be a whole number"),
        ({"consumer_max_size": 0}, "consumer_max_size: must be at least 1"),
        ({"limit": 1, "limits": 1}, "limits: unknown key; did you mean limit?"),
        ({"limit": 1, "mode": "off"}, "mode: must be 'enforce' or 'audit'"),
        ({"limit": 1, "error_code": True}, "error_code: must be 77 or 81"),
        ({"overrides": None}, "overrides: must be a list"),
        ({"overrides": {"group": "g", "limit": 1}}, "overrides: must be a list"),
        ({"overrides": [5]}, "overrides.0: must be a mapping of keys"),
        ({"overrides": [{"limit": 1}]}, "overrides.0: needs either group or pattern"),
        ({"overrides": [{"group": "g", "pattern": "g", "limit": 1}]}, "overrides.0: needs either group or pattern"),
        ({"overrides": [{"group": "g"}]}, "overrides.0: needs limit or consumer_max_size"),
        ({"overrides": [{"group": "", "limit": 1}]}, "overrides.0.group: must not be empty"),
        ({"overrides": [{"group": 5, "limit": 1}]}, "overrides.0.group: must be text"),
        ({"overrides": [{"group": "g", "limit": 0}]}, "overrides.0.limit: must be at least 1"),
        ({"overrides": [{"patern": "g", "limit": 1}]}, "overrides.0.patern: unknown key; did you mean pattern?"),
        (
            {"overrides": [{"group": "g", "limit": 1}, {"pattern": "(", "limit": 1}]},
            "overrides.1.pattern: is no regular expression: missing ), unterminated subpattern at position 0",
        ),
        (
            {"overrides": [{"pattern": f"a{{{1 << 70}}}", "limit": 1}]},
            "overrides.0.pattern: is no regular expression: the repetition number is too large",
        ),
        ({"overrides": [{"pattern": "(" * 5000, "limit": 1}]}, "overrides.0.pattern: is nested too deeply"),
    ],
)
def test_limit_fault_is_reported_with_path(write: Any, settings: dict[str, Any], line: str) -> None:
    """An invalid limit or override is one line with its path."""
    assert faults(write({**LEAST, "policies": {"group_max_size": settings}})) == [
        f"sidecar.yaml: policies.group_max_size.{line}"
    ]


def test_empty_overrides_are_no_limit(write: Any) -> None:
    """An empty list of overrides does not satisfy the need for a limit."""
    assert faults(write({**LEAST, "policies": {"group_max_size": {"overrides": []}}})) == [
        "sidecar.yaml: policies.group_max_size: needs limit, consumer_max_size or an override"
    ]
