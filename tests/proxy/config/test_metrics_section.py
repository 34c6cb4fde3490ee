"""Tests which groups have series, by the settings."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from group_sidecar.proxy.config.loading import ConfigError, load_config
from group_sidecar.proxy.config.model import ENVIRONMENT, Config
from group_sidecar.proxy.config.page import page


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Loads settings of metrics from a file."""
    monkeypatch.chdir(tmp_path)

    def load_metrics(settings: dict[str, Any]) -> Config:
        file = Path("sidecar.yaml")
        file.write_text(yaml.safe_dump({"listen": "127.0.0.1:1", "upstream": "broker:1", "metrics": settings}))
        return load_config(file, None)

    return load_metrics


def test_metric_patterns_are_lists(load: Any) -> None:
    """The allow and deny patterns are lists, empty by default."""
    metrics = load({"allow": ["orders-.*"], "deny": ["orders-tmp-.*", "console-consumer-.*"]}).metrics
    assert metrics.allow == ("orders-.*",)
    assert metrics.deny == ("orders-tmp-.*", "console-consumer-.*")
    assert load({}).metrics.allow == load({}).metrics.deny == ()


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"allow": ["a", "("]}, "allow.1: is no regular expression: missing ), unterminated subpattern at position 0"),
        ({"deny": ["*"]}, "deny.0: is no regular expression: nothing to repeat at position 0"),
        ({"deny": [""]}, "deny.0: must not be empty"),
        ({"allow": "orders"}, "allow: must be a list"),
        ({"alow": []}, "alow: unknown key; did you mean allow?"),
    ],
)
def test_invalid_pattern_is_reported_with_path(load: Any, settings: dict[str, Any], line: str) -> None:
    """An invalid pattern setting is one line with its path."""
    with pytest.raises(ConfigError) as refused:
        load(settings)
    assert refused.value.lines == [f"sidecar.yaml: metrics.{line}"]


def test_environment_sets_metric_patterns(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment variable sets the patterns."""
    monkeypatch.setenv(f"{ENVIRONMENT}METRICS__DENY", '["tmp-.*"]')
    assert load({}).metrics.deny == ("tmp-.*",)


def test_page_shows_metric_patterns() -> None:
    """The page of settings contains metrics.allow."""
    assert "| `metrics.allow` | list of text |  |" in page()
