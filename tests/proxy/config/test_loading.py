"""Tests where settings are read from, and how faulty files and variables are reported."""

import os
from pathlib import Path
from typing import Any

import pytest

from group_sidecar.proxy.config.loading import ConfigError, load_config
from group_sidecar.proxy.config.model import ENVIRONMENT, Config
from group_sidecar.proxy.runtime.addresses import Address
from tests.proxy.config.loaded_settings import LEAST, faults, limits_of, the_policy


def test_flags_override_environment_over_file(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags override environment variables, which override the file."""
    file = write({**LEAST, "limits": {"connections": 1, "groups": 1, "offsets": 1}})
    monkeypatch.setenv("GROUP_SIDECAR__LIMITS__CONNECTIONS", "2")
    monkeypatch.setenv("GROUP_SIDECAR__LIMITS__GROUPS", "2")
    limits = load_config(file, {"limits": {"connections": 3}}).limits
    assert (limits.connections, limits.groups, limits.offsets) == (3, 2, 1)


def test_flag_keeps_other_keys_of_section(write: Any) -> None:
    """A flag leaves the other keys of its section in the file unchanged."""
    file = write({**LEAST, "policies": {"group_max_size": {"limit": 10, "error_code": 81}}})
    policy = the_policy(load_config(file, {"policies": {"group_max_size": {"limit": 20}}}))
    assert (policy.settings.limit, policy.settings.error_code) == (20, 81)


def test_environment_can_set_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment variables can set keys of every section."""
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
    assert (the_policy(config).settings.limit, the_policy(config).settings.error_code) == (5, 81)
    assert config.answers.enabled is False
    assert config.journal is not None
    assert config.journal.folder == Path("records")
    assert config.advertised_host == "kafka.example"


def test_file_overrides_apply_with_flag_limit(write: Any) -> None:
    """Overrides from the file apply together with a limit from a flag, and the first match counts."""
    overrides = [
        {"group": "billing", "limit": 500},
        {"pattern": "team-.*", "limit": None},
        {"pattern": ".*-batch", "consumer_max_size": 7},
    ]
    file = write({**LEAST, "policies": {"group_max_size": {"limit": 10, "overrides": overrides}}})
    config = load_config(file, {"policies": {"group_max_size": {"limit": 20}}})
    assert limits_of(config, "billing") == (500, None)
    assert limits_of(config, "billings") == (20, None)
    assert limits_of(config, "team-a") == (None, None)
    assert limits_of(config, "my-team-a") == (20, None)
    assert limits_of(config, "team-batch") == (None, None)  # Only the first match counts.
    assert limits_of(config, "night-batch") == (20, 7)
    assert limits_of(config, "night-batches") == (20, None)
    assert limits_of(config, "team-\na\U0001f980") == (None, None)
    assert limits_of(config, "Team-a") == (20, None)


def test_environment_can_set_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment variable can set overrides, whose faults are attributed to the environment."""
    name = "GROUP_SIDECAR__POLICIES__GROUP_MAX_SIZE__OVERRIDES"
    monkeypatch.setenv(name, '[{"group": "billing", "limit": 5}]')
    assert limits_of(load_config(flags=LEAST), "billing") == (5, None)
    monkeypatch.setenv(name, '[{"group": "billing", "limit": 0}]')
    line = "policies.group_max_size.overrides.0.limit: must be at least 1"
    assert faults(flags=LEAST) == [f"environment: {line}"]


def test_list_fault_names_its_file(write: Any) -> None:
    """A fault in a list of the file names the file, although a flag sets another key of the section."""
    file = write({**LEAST, "policies": {"group_max_size": {"overrides": [{"group": "g", "limit": 0}]}}})
    assert faults(file, {"policies": {"group_max_size": {"limit": 5}}}) == [
        "sidecar.yaml: policies.group_max_size.overrides.0.limit: must be at least 1"
    ]


def test_environment_section_replaces_plain_value(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A section from the environment replaces a plain value in the file and is checked."""
    monkeypatch.setenv("GROUP_SIDECAR__JOURNAL__INTERVAL_SECONDS", "5")
    assert faults(write({**LEAST, "journal": 5})) == ["environment: journal: needs a folder or a topic"]


def test_misspelt_policy_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt environment variable of a policy is reported with the likely key."""
    monkeypatch.setenv("GROUP_SIDECAR__POLICIES__GROUP_MAX_SIZE__LIMTI", "5")
    assert faults(flags=LEAST) == ["environment: policies.group_max_size.limti: unknown key; did you mean limit?"]


def test_each_fault_has_its_own_line(write: Any) -> None:
    """Several faults are several lines."""
    assert faults(write({"listen": "a:1", "modes": 1})) == [
        "sidecar.yaml: upstream: is required",
        "sidecar.yaml: modes: unknown key; did you mean mode?",
    ]


def test_fault_names_flag_or_environment(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of a flag or an environment variable names that source instead of the file."""
    monkeypatch.setenv("GROUP_SIDECAR__LIMITS__GROUPS", "0")
    assert faults(write(LEAST), {"admin": "x"}) == [
        "flags: admin: must be HOST:PORT, for instance 127.0.0.1:9092",
        "environment: limits.groups: must be at least 1",
    ]


def test_misspelt_variable_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt top-level environment variable is reported as unknown, also next to other faults."""
    monkeypatch.setenv("GROUP_SIDECAR__LISTN", "a:1")
    assert faults(flags=LEAST) == ["GROUP_SIDECAR__LISTN: unknown key"]
    assert faults() == ["listen: is required", "upstream: is required", "GROUP_SIDECAR__LISTN: unknown key"]


def test_plain_variable_for_section_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain environment variable in place of a section is refused."""
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
        ("listen: 2026-13-01", "is not YAML: month must be in 1..12"),
        ("[" * 5000, "is nested too deeply"),
        ("mode: sidecar\nmode: gateway", "is not YAML in line 2, column 1: mode is there twice"),
        ("limits:\n  groups: 1\n  groups: 2", "is not YAML in line 3, column 3: groups is there twice"),
    ],
)
def test_malformed_file_is_refused(write: Any, text: str, line: str) -> None:
    """A file that is not a YAML mapping, is nested too deeply or repeats a key is refused with one line."""
    assert faults(write(text)) == [f"sidecar.yaml: {line}"]


def test_unreadable_file_is_reported(write: Any, tmp_path: Path) -> None:
    """A missing or undecodable file is one line with the reason."""
    assert faults(Path("absent.yaml")) == ["absent.yaml: no such file or directory"]
    Path("binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert faults(Path("binary.yaml")) == ["binary.yaml: is not UTF-8"]


@pytest.mark.timeout(20)
def test_reload_reads_only_regular_files(write: Any, tmp_path: Path) -> None:
    """A reload reads a link to a file, as Kubernetes makes, but refuses a FIFO or a device at once."""
    data, link = tmp_path / "..data", tmp_path / "link.yaml"
    data.symlink_to(tmp_path)
    link.symlink_to(data / write(LEAST))
    assert load_config(link, only_regular=True) == load_config(link)
    fifo = tmp_path / "fifo.yaml"
    os.mkfifo(fifo)
    for file in (fifo, Path("/dev/null")):
        with pytest.raises(ConfigError) as caught:
            load_config(file, only_regular=True)
        assert caught.value.lines == [f"{file}: is not a regular file, so it cannot be read again"]
    for file, reason in ((tmp_path, "is a directory"), (tmp_path / "none", "no such file or directory")):
        with pytest.raises(ConfigError, match=reason):
            load_config(file, only_regular=True)


def test_yaml_anchors_are_merged(write: Any) -> None:
    """YAML anchors and merge keys work in lists of overrides."""
    shared = "- &team {limit: 5, group: a}\n    - {<<: *team, group: b}"
    text = f"listen: 'a:1'\nupstream: 'b:1'\npolicies:\n  group_max_size:\n    overrides:\n    {shared}\n"
    assert limits_of(load_config(write(text)), "b") == (5, None)


def test_empty_file_equals_no_file(write: Any) -> None:
    """An empty file is the same as no file."""
    assert load_config(write(""), LEAST) == Config(**LEAST)
