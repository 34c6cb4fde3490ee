"""Wrong settings with one fault each: as keys of a file, as whole files, as variables, and as flags."""

from typing import Any

Settings = dict[str, Any]


def _size(**settings: Any) -> Settings:
    return {"policies": {"group_max_size": settings}}


def _override(*overrides: Any) -> Settings:
    return _size(overrides=list(overrides))


def _limits(name: str, *values: Any) -> list[Settings]:
    return [{"limits": {name: value}} for value in values]


def _journal(**settings: Any) -> Settings:
    return {"journal": {"folder": "records", **settings}}


def _sasl(**settings: Any) -> Settings:
    return {"own_connection": {"sasl": {"mechanism": "PLAIN", "username": "u", "password": "p", **settings}}}


def _bearer(**settings: Any) -> Settings:
    return {"own_connection": {"sasl": {"mechanism": "OAUTHBEARER", **settings}}}


def _endpoint(url: Any, **settings: Any) -> Settings:
    return _bearer(**{"token_endpoint_url": url, "client_id": "c", "client_secret": "s", **settings})


def _access(**settings: Any) -> Settings:
    return {"admin_access": settings}


_UNKNOWN: list[Settings] = [
    {"lisen": "a:1"},
    {"brokers": 3},
    {"policies": {"group_max_siez": {}}},
    {"policies": {5: {}}},
    {"limits": {"group": 1}},
    {"limits": {"xyzzy": 1}},
    {"own_connection": {"tls": {"cafile": "x"}}},
    {"own_connection": {"ssl": {}}},
    {"journal": {"foldr": "records"}},
    {"log": {"file": "x"}},
    {"metrics": {"detial": "none"}},
    {"answers": {"api": []}},
    {"gateway": {"advertised": "x"}},
    {"offsets_log": {"reads": True}},
    {"admin_access": {"tokens": "x"}},
]

_LISTEN = ("here", 9092, None, "", "a:", ":1", "a:b", "a:-1", "a:65536", "::1:9092", "[::1]", True)
_UPSTREAM = ("broker:0", "127.0.0.1:9092", "broker", 5, ["a:1"], {"host": "a"})
_ADMIN = (9091, "127.0.0.1:9092", "x", "a:99999", "::1:9464")

_ADDRESSES: list[Settings] = [
    *({"listen": address} for address in _LISTEN),
    *({"upstream": address} for address in _UPSTREAM),
    *({"admin": address} for address in _ADMIN),
    *({"own_connection": {"address": address}} for address in ("broker", "broker:0", 5)),
]

_NAMED = ("admin_access", "gateway", "own_connection", "policies", "answers", "offsets_log", "limits", "metrics")
_NO_SECTION: tuple[Any, ...] = (5, "text", [])

_SECTIONS: list[Settings] = [
    *({name: value} for name in _NAMED for value in _NO_SECTION),
    *({"policies": None}, {"limits": None}, {"journal": 5}, {"journal": {}}, {"log": "info"}),
]

_POLICIES: list[Settings] = [
    _size(),
    _size(limit=0),
    _size(limit=-1),
    _size(limit="many"),
    _size(limit=True),
    _size(limit=1.5),
    _size(limit=float("nan")),
    _size(limit=float("inf")),
    _size(limit=1 << 31),
    _size(limit=[1]),
    _size(consumer_max_size=0),
    _size(consumer_max_size=True),
    _size(consumer_max_size=1 << 31),
    _size(limit=1, limits=1),
    _size(limit=1, mode="off"),
    _size(limit=1, mode=True),
    _size(limit=1, error_code=78),
    _size(limit=1, error_code=True),
    _size(limit=1, error_code="seventy"),
    _size(limit=1, overrides=None),
    _size(limit=1, overrides={"group": "g", "limit": 1}),
    _size(overrides=[]),
    {"policies": {"group_max_size": 5}},
    {"policies": {"offset_metadata_max_bytes": {}}},
    {"policies": {"offset_metadata_max_bytes": {"limit": -1}}},
    {"policies": {"offset_metadata_max_bytes": {"limit": True}}},
    {"policies": {"offset_metadata_max_bytes": {"limit": "x"}}},
    {"policies": {"offset_metadata_max_bytes": {"limit": None}}},
    {"policies": {"offset_metadata_max_bytes": {"limit": 1, "mode": "report"}}},
    {"policies": {"offset_metadata_max_bytes": {"limit": 1, "overrides": []}}},
]

_OVERRIDES: list[Settings] = [
    _override(5),
    _override(None),
    _override({"limit": 1}),
    _override({"group": "g", "pattern": "g", "limit": 1}),
    _override({"group": "g"}),
    _override({"group": "", "limit": 1}),
    _override({"group": 5, "limit": 1}),
    _override({"group": "g", "limit": 0}),
    _override({"group": "g", "limit": True}),
    _override({"group": "g", "consumer_max_size": 1 << 31}),
    _override({"patern": "g", "limit": 1}),
    _override({"group": "g", "limit": 1}, {"pattern": "(", "limit": 1}),
    _override({"pattern": "", "limit": 1}),
    _override({"pattern": 5, "limit": 1}),
    _override({"pattern": "[z-a]", "limit": 1}),
    _override({"pattern": "*", "limit": 1}),
    _override({"pattern": f"a{{{1 << 70}}}", "limit": 1}),
    _override({"pattern": "(" * 5000, "limit": 1}),
]

_ANSWERS: list[Settings] = [
    {"answers": {"enabled": "perhaps"}},
    {"answers": {"enabled": 2}},
    {"answers": {"enabled": None}},
    {"answers": {"apis": "ListGroups"}},
    {"answers": {"apis": ["Fetch"]}},
    {"answers": {"apis": [5]}},
    {"answers": {"exclusive": "x"}},
    {"answers": {"client_host": "proxy"}},
    {"answers": {"authorizer": "acl"}},
    {"answers": {"rights_seconds": -1}},
    {"answers": {"rights_seconds": True}},
    {"answers": {"rights_seconds": "x"}},
    {"answers": {"verify": -0.1}},
    {"answers": {"verify": 1.5}},
    {"answers": {"verify": False}},
]

_TIMES_AND_COUNTS: list[Settings] = [
    *_limits("largest_frame", 1023, 1 << 31, True, "x", 1.5),
    *_limits("inspected_frame", 1023, 1 << 31, True),
    *_limits("inspected_elements", 99, True),
    *_limits("held_frames", 1023, True),
    *_limits("connections", 0, -1, True, None, "x"),
    *_limits("idle_seconds", -1, 0.5, True, "long", None),
    *_limits("stalled_seconds", 0, 0.5, True),
    *_limits("reply_seconds", -1, 0.5, True),
    *_limits("groups", 0, True),
    *_limits("offsets", 0, True),
    *_limits("rights", 0, True),
    *_limits("remembered_answers", -1, True),
    *_limits("flight_recorder", -1, True),
    {"offsets_log": {"read": "x"}},
    {"offsets_log": {"load_buffer_size": 65_535}},
    {"offsets_log": {"load_buffer_size": 1 << 30}},
    {"offsets_log": {"load_buffer_size": True}},
]

_JOURNAL: list[Settings] = [
    {"journal": {"interval_seconds": 5}},
    *({"journal": {"topic": topic}} for topic in ("", "a b", ".", "..", "t" * 250, "t\n", 5)),
    _journal(folder=5),
    *(_journal(contract_version=version) for version in (0, 3, 1.5, True, "new")),
    _journal(interval_seconds=0.05),
    _journal(interval_seconds=True),
    _journal(segment_bytes=0),
    _journal(segment_bytes=True),
    _journal(segment_seconds=0),
    _journal(segment_bytes=10, total_bytes=19),
    _journal(segment_bytes=1 << 30),
    _journal(total_bytes=0),
    _journal(total_bytes=True),
    _journal(retention_seconds=0),
    _journal(retention_seconds=True),
    _journal(topic_batch_bytes=1023),
    _journal(topic_batch_bytes=1 << 30),
    _journal(topic_linger_seconds=-1),
    _journal(topic_linger_seconds=True),
    _journal(topic_compression="lz4"),
]

_CONNECTIONS: list[Settings] = [
    {"own_connection": {"sasl": {}}},
    {"own_connection": {"sasl": 5}},
    _sasl(mechanism="GSSAPI"),
    _sasl(username=""),
    _sasl(username=5),
    _sasl(password=None),
    _sasl(password=5),
    _sasl(password_file="secret"),
    _sasl(password=None, password_file=5),
    _sasl(username=None),
    _sasl(token_file="token"),
    _bearer(),
    _bearer(username="u", password="p"),
    _bearer(token_file=5),
    _bearer(token_file="token", client_id="c"),
    _endpoint("https://issuer.example/token", token_file="token"),
    _endpoint("https://issuer.example/token", client_id=None),
    _endpoint("https://issuer.example/token", client_secret_file="secret"),
    _endpoint("https://issuer.example/token", scope=""),
    _endpoint("http://issuer.example/token"),
    _endpoint("issuer.example"),
    _endpoint("https://user@issuer.example"),
    _endpoint(5),
    {"own_connection": {"tls": {"key_file": "own.key"}}},
    {"own_connection": {"tls": {"server_name": ""}}},
    {"own_connection": {"tls": {"ca_file": 5}}},
    {"own_connection": {"tls": True}},
    _access(open="x"),
    _access(metrics="closed"),
    _access(token="t", token_file="token"),
    _access(token=" "),
    _access(token=5),
    _access(token_file=5),
    _access(key_file="admin.key"),
    _access(client_ca_file="ca.pem"),
]

_OTHERS: list[Settings] = [
    {"mode": "proxy"},
    {"mode": None},
    {"mode": "gateway", "listen": "0.0.0.0:9092"},
    {"mode": "gateway", "listen": "[::]:9092"},
    {"mode": "gateway", "own_connection": {"address": "broker:9094"}},
    {"gateway": {"first_port": -1}},
    {"gateway": {"first_port": 65_536}},
    {"gateway": {"first_port": True}},
    {"gateway": {"advertise": 5}},
    {"gateway": {"advertise": ""}},
    {"gateway": {"advertise": "0.0.0.0"}},
    {"gateway": {"advertise": "gateway.example:9092"}},
    {"gateway": {"advertise": "broker-{id}.example"}},
    {"gateway": {"advertise": "{node}.{node}.example"}},
    {"gateway": {"advertise": "broker-{node}:9092"}},
    {"gateway": {"advertise": "a." * 125 + "{node}"}},
    {"gateway": {"strict_ports": True}},
    {"gateway": {"advertised_port": 9092}},
    {"gateway": {"bootstrap_names": ["kafka.example"]}},
    {"gateway": {"one_port": True, "advertise": "kafka.example", "bootstrap_names": ["kafka.example"]}},
    {"gateway": {"one_port": True, "advertise": "b-{node}.example"}},
    {"gateway": {"one_port": True, "advertise": "b-{node}.example", "bootstrap_names": ["*.example"]}},
    {"gateway": {"one_port": True, "advertise": "b-{node}.example", "bootstrap_names": ["b-1.example"]}},
    {
        "gateway": {
            "one_port": True,
            "advertise": "b-{node}.example",
            "bootstrap_names": ["kafka.example"],
            "first_port": 9100,
        }
    },
    {
        "mode": "gateway",
        "gateway": {"one_port": True, "advertise": "b-{node}.example", "bootstrap_names": ["kafka.example"]},
    },
    {"sidecar_id": ""},
    {"sidecar_id": 5},
    {"io_uring": "x"},
    {"io_uring": 2},
    {"group_metadata_request": "x"},
    {"metrics": {"detail": "member"}},
    {"metrics": {"allow": "team-.*"}},
    {"metrics": {"allow": ["("]}},
    {"metrics": {"allow": [""]}},
    {"metrics": {"deny": [5]}},
    {"metrics": {"deny": ["a", "[z-a]"]}},
    {"metrics": {"series": 0}},
    {"metrics": {"series": True}},
    {"log": {"format": "text"}},
    {"log": {"level": "trace"}},
    {"log": {"level": 5}},
    {"limits": {"groups": 0, "offsets": 0}, "modes": 1},
]

WRONG: list[Settings] = [
    *(*_UNKNOWN, *_ADDRESSES, *_SECTIONS, *_POLICIES, *_OVERRIDES),
    *(*_ANSWERS, *_TIMES_AND_COUNTS, *_JOURNAL, *_CONNECTIONS, *_OTHERS),
]
"""Settings of a file that are added to the required settings or replace them."""

TEXTS = [
    "",
    "{listen: '127.0.0.1:9092'}",
    "{upstream: 'broker:9092'}",
    "listen: [",
    "- listen",
    "text",
    "5: 6",
    "listen: 2026-13-01",
    "[" * 5000,
    "mode: sidecar\nmode: gateway",
    "limits:\n  groups: 1\n  groups: 2",
    "a: b: c",
    "\tlisten: a",
    "listen: *absent",
    "listen: !!python/object:os.system x",
    "listen: !unknown x",
    "a: 1\n---\nb: 2",
    "'listen",
    "? [a]\n: 1",
    "limits: {5: 1}",
    "listen: \x07",
]
"""Whole files that are not YAML, are not a mapping, or lack a required setting."""

UNUSED_VARIABLES = [{"GROUP_SIDECAR_LIMITS_CONNECTIONS": "5"}, {"GROUP_SIDECAR_SERVICE_HOST": "10.0.0.1"}]
"""Variables that are no settings. Only the first of them looks like one."""

BYTES = [b"\xff\xfe\x00", b"listen: \xe9"]
"""Files that are not UTF-8."""

_VARIABLE = "GROUP_SIDECAR__"
TARGET_VARIABLES: list[dict[str, str]] = [
    {_VARIABLE + name: value}
    for name, value in (
        ("LISTN", "a:1"),
        ("LIMITS", "5"),
        ("GATEWAY", "yes"),
        ("GATEWAY", "[]"),
        ("LIMITS__GROUPS", "0"),
        ("LIMITS__GROUPS", "many"),
        ("LIMITS__GROUPS", ""),
        ("LIMITS__GROPS", "1"),
        ("LIMITS__IDLE_SECONDS", "0.5"),
        ("LISTEN", "here"),
        ("UPSTREAM", "127.0.0.1:9092"),
        ("MODE", "Sidecar"),
        ("IO_URING", "perhaps"),
        ("SIDECAR_ID", ""),
        ("ANSWERS__APIS", "ListGroups"),
        ("ANSWERS__APIS", '["Fetch"]'),
        ("METRICS__ALLOW", '["("]'),
        ("JOURNAL__INTERVAL_SECONDS", "5"),
        ("JOURNAL__FOLDER", "records"),
        ("OWN_CONNECTION__SASL__USERNAME", "u"),
        ("POLICIES__GROUP_MAX_SIZE__LIMTI", "5"),
        ("POLICIES__GROUP_MAX_SIZE__LIMIT", "5"),
        ("POLICIES__GROUP_MAX_SIZE__ERROR_CODE", "78"),
        ("POLICIES__GROUP_MAX_SIZE__OVERRIDES", '[{"group": "g", "limit": 0}]'),
        ("POLICIES__GROUP_MAX_SIZE__OVERRIDES", "[{"),
        ("ADMIN_ACCESS__TOKEN", " "),
    )
]
"""Variables that are combined with a valid file. Two of them are valid."""

_RUN = ("run", "--listen", "127.0.0.1:9092")
FLAGS: list[tuple[str, ...]] = [
    ("check-config",),
    ("check-config", "sidecar.yaml", "other.yaml"),
    ("check-config", "--strict", "sidecar.yaml"),
    ("run", "--listen", "here", "--upstream", "broker:9092"),
    _RUN,
    ("run", "--upstream", "broker:9092"),
    (*_RUN, "--upstream", "broker"),
    (*_RUN, "--upstream", "127.0.0.1:9092"),
    (*_RUN, "--upstream", "broker:9092", "--admin", "9091"),
    (*_RUN, "--upstream", "broker:9092", "--group-max-size", "0"),
    (*_RUN, "--upstream", "broker:9092", "--group-max-size", "many"),
    (*_RUN, "--upstream", "broker:9092", "--mode", "proxy"),
    (*_RUN, "--upstream", "broker:9092", "--log-format", "text"),
    ("run", "--listen", "0.0.0.0:9092", "--upstream", "broker:9092", "--mode", "gateway"),
    ("run", "--listn", "a:1"),
    ("run", "--listen"),
    ("run", "extra"),
    ("run", "--config", "absent.yaml"),
    ("run", "--config", "sidecar.yaml", "--upstream", "broker"),
]
"""Command lines. None of them starts a sidecar."""
