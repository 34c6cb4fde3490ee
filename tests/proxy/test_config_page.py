"""The page of settings."""

from pathlib import Path

from group_sidecar.proxy.config_page import page

COMMITTED = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_committed_page_is_the_generated_one() -> None:
    assert COMMITTED.read_text() == page()


def test_a_setting_has_its_bounds_and_its_default() -> None:
    assert "| `limits.connections` | whole number, at least 1 | `10000` |" in page()
    assert "| `policies.group_max_size` | section | off |" in page()
    assert "| `policies.group_max_size.overrides` | list of sections |  |" in page()
    limit = "whole number, at least 1, at most 2147483647"
    assert f"| `policies.group_max_size.overrides[].limit` | {limit} |  |" in page()
    assert "| `upstream` | HOST:PORT | required |" in page()
