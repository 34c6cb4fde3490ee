"""Settings as the tests load them, and the lines for invalid settings."""

from pathlib import Path
from typing import Any

import pytest

from group_sidecar.policies.group_max_size import GroupMaxSize, Limits
from group_sidecar.proxy.config.loading import ConfigError, load_config
from group_sidecar.proxy.config.model import Config

LEAST: dict[str, Any] = {"listen": "127.0.0.1:9092", "upstream": "broker:9092"}


def faults(file: Path | None = None, flags: dict[str, Any] | None = None) -> list[str]:
    """Returns the lines for invalid settings."""
    with pytest.raises(ConfigError) as refused:
        load_config(file, flags)
    assert str(refused.value) == "; ".join(refused.value.lines)
    return refused.value.lines


def the_policy(config: Config) -> GroupMaxSize:
    """Returns the one policy that is switched on."""
    [policy] = config.enabled_policies()
    assert isinstance(policy, GroupMaxSize)
    return policy


def limits_of(config: Config, group_id: str) -> Limits:
    """Returns the limit of a group under the one policy that is switched on."""
    return the_policy(config).limits(group_id)
