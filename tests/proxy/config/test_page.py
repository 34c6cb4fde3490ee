"""Tests the page of settings."""

from pathlib import Path

from group_sidecar.proxy.config.page import page

COMMITTED = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_committed_page_is_up_to_date() -> None:
    """The committed page of settings equals the generated page."""
    assert COMMITTED.read_text() == page()


def test_page_shows_bounds_and_defaults() -> None:
    """The page of settings shows the type, the bounds and the default of a setting."""
    assert "| `limits.connections` | whole number, at least 1 | `10000` |" in page()
    assert "| `policies.group_max_size` | section | off |" in page()
    assert "| `policies.group_max_size.overrides` | list of sections |  |" in page()
    limit = "whole number, at least 1, at most 2147483647"
    assert f"| `policies.group_max_size.overrides[].limit` | {limit} |  |" in page()
    assert "| `listeners[].upstream` | HOST:PORT | required |" in page()
