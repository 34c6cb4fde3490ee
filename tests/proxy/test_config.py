"""Settings: where they come from, and what a wrong one is called."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from group_sidecar.proxy.addresses import Address
from group_sidecar.proxy.config import ENVIRONMENT, Config, ConfigError, load_config

LEAST: dict[str, Any] = {"listen": "127.0.0.1:9092", "upstream": "broker:9092"}


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of ours in the environment."""
    for name in list(os.environ):
        if name.startswith(ENVIRONMENT):
            monkeypatch.delenv(name)


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes sidecar.yaml into an empty working directory."""
    monkeypatch.chdir(tmp_path)

    def write_file(settings: object) -> Path:
        file = Path("sidecar.yaml")
        file.write_text(settings if isinstance(settings, str) else yaml.safe_dump(settings))
        return file

    return write_file


def faults(file: Path | None = None, flags: dict[str, Any] | None = None) -> list[str]:
    """The lines of what is wrong."""
    with pytest.raises(ConfigError) as refused:
        load_config(file, flags)
    assert str(refused.value) == "; ".join(refused.value.lines)
    return refused.value.lines


def test_the_least_has_all_defaults(write: Any) -> None:
    config = load_config(write(LEAST))
    assert config.listen == Address("127.0.0.1", 9092)
    assert config.upstream == Address("broker", 9092)
    assert config.admin is None
    assert config.sidecar_id == f"{socket.gethostname()}:9092"
    assert config.mode == "sidecar"
    assert config.policies.group_max_size is None
    assert config.journal is None
    assert config.limits.idle_seconds == 900
    assert config.advertised_host == "127.0.0.1"


def test_flags_go_before_the_environment_and_that_before_the_file(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write({**LEAST, "limits": {"connections": 1, "groups": 1, "offsets": 1}})
    monkeypatch.setenv("GROUP_SIDECAR__LIMITS__CONNECTIONS", "2")
    monkeypatch.setenv("GROUP_SIDECAR__LIMITS__GROUPS", "2")
    limits = load_config(file, {"limits": {"connections": 3}}).limits
    assert (limits.connections, limits.groups, limits.offsets) == (3, 2, 1)


def test_a_flag_leaves_its_neighbours_in_the_file_alone(write: Any) -> None:
    file = write({**LEAST, "policies": {"group_max_size": {"limit": 10, "error_code": 81}}})
    limit = load_config(file, {"policies": {"group_max_size": {"limit": 20}}}).policies.group_max_size
    assert limit is not None
    assert (limit.limit, limit.error_code) == (20, 81)


def test_everything_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "LISTEN": "[::1]:0",
        "UPSTREAM": "broker:1",
        "ADMIN": "0.0.0.0:9091",
        "POLICIES__GROUP_MAX_SIZE__LIMIT": "5",
        "POLICIES__GROUP_MAX_SIZE__ERROR_CODE": "81",
        "ANSWERS__ENABLED": "false",
        "JOURNAL__FOLDER": "records",
        "GATEWAY__ADVERTISE": "kafka.example",
    }.items():
        monkeypatch.setenv(ENVIRONMENT + name, value)
    config = load_config()
    assert config.listen == Address("::1", 0)
    assert config.admin == Address("0.0.0.0", 9091)
    assert config.policies.group_max_size is not None
    assert config.policies.group_max_size.error_code == 81
    assert config.answers.enabled is False
    assert config.journal is not None
    assert config.journal.folder == Path("records")
    assert config.advertised_host == "kafka.example"


def test_nothing_changes_once_it_is_read() -> None:
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
        ({"policies": {"group_max_size": {}}}, "policies.group_max_size.limit: is required"),
        (
            {"policies": {"group_max_size": {"limit": 1, "error_code": 78}}},
            "policies.group_max_size.error_code: must be 77 or 81",
        ),
        ({"policies": {"group_max_siez": {}}}, "policies.group_max_siez: unknown key; did you mean group_max_size?"),
        ({"lisen": "a:1"}, "lisen: unknown key; did you mean listen?"),
        ({"brokers": 3}, "brokers: unknown key"),
        ({"gateway": 5}, "gateway: must be a mapping of keys"),
        ({"listen": "here"}, "listen: must be HOST:PORT, for instance 127.0.0.1:9092"),
        ({"admin": 9091}, "admin: must be HOST:PORT, for instance 127.0.0.1:9092"),
        ({"upstream": "broker:0"}, "upstream: the port must be at least 1"),
        ({"upstream": LEAST["listen"]}, "upstream: is the sidecar's own listen address"),
        ({"mode": "proxy"}, "mode: must be 'sidecar' or 'gateway'"),
        ({"sidecar_id": ""}, "sidecar_id: must not be empty"),
        ({"sidecar_id": 5}, "sidecar_id: must be text"),
        ({"answers": {"enabled": "perhaps"}}, "answers.enabled: must be true or false"),
        ({"limits": {"idle_seconds": -1}}, "limits.idle_seconds: must be at least 0"),
        ({"limits": {"idle_seconds": "long"}}, "limits.idle_seconds: must be a number"),
        ({"limits": {"largest_frame": 1 << 31}}, "limits.largest_frame: must be at most 2147483647"),
        ({"journal": {"folder": 5}}, "journal.folder: must be a path"),
        ({"journal": {"folder": "f", "interval_seconds": 0}}, "journal.interval_seconds: must be more than 0"),
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
    ],
)
def test_a_fault_is_one_line_with_the_file_and_the_path(write: Any, settings: dict[str, Any], line: str) -> None:
    assert faults(write({**LEAST, **settings})) == [f"sidecar.yaml: {line}"]


def test_several_faults_are_several_lines(write: Any) -> None:
    assert faults(write({"listen": "a:1", "modes": 1})) == [
        "sidecar.yaml: upstream: is required",
        "sidecar.yaml: modes: unknown key; did you mean mode?",
    ]


def test_a_fault_of_a_flag_or_the_environment_is_not_the_file_s(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUP_SIDECAR__LIMITS__GROUPS", "0")
    assert faults(write(LEAST), {"admin": "x"}) == [
        "flags: admin: must be HOST:PORT, for instance 127.0.0.1:9092",
        "environment: limits.groups: must be at least 1",
    ]


def test_a_misspelt_variable_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUP_SIDECAR__LISTN", "a:1")
    assert faults(flags=LEAST) == ["GROUP_SIDECAR__LISTN: unknown key"]
    assert faults() == ["listen: is required", "upstream: is required", "GROUP_SIDECAR__LISTN: unknown key"]


def test_a_variable_that_is_no_section_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUP_SIDECAR__GATEWAY", "yes")
    [line] = faults(flags=LEAST)
    assert line.startswith("environment: ")
    assert '"gateway"' in line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("listen: [", "is not YAML in line 1, column 10: expected the node content, but found '<stream end>'"),
        ("- listen", "must be a mapping of keys"),
        ("5: 6", "must be a mapping of keys"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused(write: Any, text: str, line: str) -> None:
    assert faults(write(text)) == [f"sidecar.yaml: {line}"]


def test_a_file_that_cannot_be_read_is_said_so(write: Any, tmp_path: Path) -> None:
    assert faults(Path("absent.yaml")) == ["absent.yaml: no such file or directory"]
    Path("binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert faults(Path("binary.yaml")) == ["binary.yaml: is not UTF-8"]


def test_an_empty_file_is_as_none(write: Any) -> None:
    assert load_config(write(""), LEAST) == Config(**LEAST)
