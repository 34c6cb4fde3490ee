"""Extracts metric names from PromQL expressions, and fills in Grafana's variables, without a PromQL parser."""

import re
from collections.abc import Mapping

_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACES = re.compile(r"\{[^}]*\}")
_LABEL_LISTS = re.compile(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
_RANGES = re.compile(r"\[[^\]]*\]")
_NAMES = re.compile(r"(?<![\w:.])[a-zA-Z_][\w:]*(?!\w|\s*\()")
_WORDS = {"and", "or", "unless", "offset", "bool"}
_DURATIONS = re.compile(r"\b\d+(ms|[smhdwy])\b")


def metric_names(expression: str) -> set[str]:
    """The names of all metrics that an expression selects by name."""
    bare = expression
    for noise in (_STRINGS, _BRACES, _LABEL_LISTS, _RANGES, _DURATIONS):
        bare = noise.sub(" ", bare)
    return set(_NAMES.findall(bare)) - _WORDS


def interpolated(expression: str, values: Mapping[str, str]) -> str:
    """The expression with Grafana's variables replaced, in the forms ``$name``, ``${name}`` and ``${name:regex}``.

    Raises:
        KeyError: a variable has no value.
    """
    return re.sub(r"\$(?:\{(\w+)(?::\w+)?\}|(\w+))", lambda match: values[match[1] or match[2]], expression)
