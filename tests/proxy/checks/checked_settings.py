"""Settings for the tests of checks, with certificates of a test's own authority."""

from collections.abc import Iterable
from typing import Any

from group_sidecar.proxy.checks.findings import Finding
from group_sidecar.proxy.config.model import Config

LEAST = {"listen": "127.0.0.1:9092", "upstream": "127.0.0.1:19092", "sidecar_id": "a"}


def settings(**further: Any) -> Config:
    return Config.model_validate({**LEAST, **further})


def listening(**listener: Any) -> Config:
    """Returns settings with one listener."""
    named = {"name": "A", "listen": "127.0.0.1:9092", "upstream": "127.0.0.1:19092", **listener}
    return Config.model_validate({"listeners": [named], "sidecar_id": "a"})


def lines(findings: Iterable[Finding]) -> list[str]:
    """Returns a line for each finding, faults in capitals."""
    return [f"{'FAULT' if finding.is_fault else 'warning'} {finding}" for finding in findings]
