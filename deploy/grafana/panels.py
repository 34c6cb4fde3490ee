"""Grafana's JSON format, as far as these dashboards need it: panels and their positions, variables and dashboards.

The format is written here by hand instead of by Grafana's Foundation SDK. The SDK's packages are published for each
version of Grafana, often daily, whereas these few structures have not changed since Grafana 10.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import Any

SCHEMA_VERSION = 41
"""The schema version of Grafana 12. Older versions can read it, and newer versions migrate it when they load it."""
COLUMNS = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
RED, YELLOW, GREEN = "red", "yellow", "green"

Json = dict[str, Any]


@dataclass(frozen=True)
class Query:
    """One PromQL query.

    Attributes:
        legend: the name of each returned series; Grafana's default if empty.
        form: `table` for current values, one per row; `heatmap` for the buckets of a histogram. Grafana then subtracts
            the next lower bucket from each bucket, because the buckets of Prometheus are cumulative.
    """

    expr: str
    legend: str = ""
    form: str = "time_series"


@dataclass(frozen=True)
class Panel:
    """One panel. `unit` is a unit of Grafana, `width` is in columns of 24, and `height` is in rows of 30 pixels."""

    kind: str
    title: str
    description: str
    queries: Sequence[Query]
    unit: str = "short"
    width: int = 12
    height: int = 8
    options: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    transformations: Sequence[Json] = ()


@dataclass(frozen=True)
class Row:
    """A heading, and the panels below it from left to right."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Variable:
    """A variable whose values come from a query.

    Attributes:
        several: whether the user can choose several values, or all, at a time.
    """

    name: str
    label: str
    query: str
    several: bool = True


@dataclass(frozen=True)
class Dashboard:
    """A dashboard. `name` is the name of its file and the end of its uid."""

    name: str
    title: str
    description: str
    variables: Sequence[Variable]
    rows: Sequence[Row]


# Panels of each kind.


def number(title: str, description: str, *queries: Query, unit: str = "short", steps: Sequence[Json] = ()) -> Panel:
    """Returns a panel with the current value. `steps` are thresholds, each with the colour from its value on."""
    options = {
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "auto",
    }
    defaults = {"thresholds": {"mode": "absolute", "steps": list(steps) or [step(None, GREEN)]}}
    return Panel("stat", title, description, queries, unit, 4, 4, options, defaults)


def step(value: float | None, color: str) -> Json:
    """Returns a threshold: the colour applies from `value` on. None is the lowest threshold."""
    return {"value": value, "color": color}


def graph(
    title: str, description: str, *queries: Query, unit: str = "short", width: int = 12, stacked: bool = False
) -> Panel:
    """Returns a panel with lines over time. Its legend shows the last and the largest value of each line."""
    options = {
        "legend": {
            "calcs": ["lastNotNull", "max"],
            "displayMode": "table",
            "placement": "bottom",
            "showLegend": True,
            "sortBy": "Last *",
            "sortDesc": True,
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    custom = {
        "drawStyle": "line",
        "fillOpacity": 60 if stacked else 10,
        "lineWidth": 1,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"group": "A", "mode": "normal" if stacked else "none"},
    }
    defaults = {"color": {"mode": "palette-classic"}, "custom": custom, "min": 0}
    return Panel("timeseries", title, description, queries, unit, width, 9, options, defaults)


def table(title: str, description: str, query: Query, *, value: str, unit: str = "short", link: str = "") -> Panel:
    """Returns a panel with the current results of a query, the largest first.

    `value` is the heading of the values. `link` is the target of each row's link.
    """
    transformations = [
        {
            "id": "organize",
            "options": {"excludeByName": {"Time": True, "__name__": True}, "renameByName": {"Value": value}},
        },
        {"id": "sortBy", "options": {"sort": [{"field": value, "desc": True}]}},
    ]
    links = [{"title": "Look at it", "url": link}] if link else []
    return Panel(
        "table",
        title,
        description,
        (Query(query.expr, form="table"),),
        unit,
        height=10,
        options={"showHeader": True, "cellHeight": "sm"},
        defaults={"custom": {"filterable": True}, "links": links},
        transformations=transformations,
    )


def heatmap(title: str, description: str, query: Query, *, unit: str = "short", width: int = 12) -> Panel:
    """Returns a panel with a row of cells for each series. A darker cell has a larger value."""
    options = {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Oranges", "steps": 32},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "tooltip": {"mode": "single", "yHistogram": False},
        "yAxis": {"axisPlacement": "left"},
    }
    return Panel("heatmap", title, description, (query,), unit, width, 8, options)


def states(title: str, description: str, query: Query) -> Panel:
    """Returns a panel with a bar over time for each series, for as long as the series exists."""
    options = {
        "alignValue": "left",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
        "mergeValues": True,
        "rowHeight": 0.8,
        "showValue": "never",
        "tooltip": {"mode": "single"},
    }
    mappings = [{"type": "value", "options": {"1": {"text": "so", "color": "blue", "index": 0}}}]
    defaults = {"custom": {"fillOpacity": 80, "lineWidth": 0}, "mappings": mappings}
    return Panel("state-timeline", title, description, (query,), "short", COLUMNS, 7, options, defaults)


# The whole dashboard.


def dashboard(one: Dashboard) -> Json:
    """Returns the dashboard in the form that Grafana imports."""
    return {
        "annotations": {"list": []},
        "description": one.description,
        "editable": True,
        "graphTooltip": 1,
        "links": [
            {
                "type": "dashboards",
                "tags": ["kafka-group-sidecar"],
                "asDropdown": False,
                "includeVars": True,
                "keepTime": True,
                "title": "",
            }
        ],
        "panels": list(_placed(one.rows)),
        "refresh": "30s",
        "schemaVersion": SCHEMA_VERSION,
        "tags": ["kafka-group-sidecar", "kafka"],
        "templating": {"list": [_datasource(), *map(_variable, one.variables)]},
        "time": {"from": "now-1h", "to": "now"},
        "timepicker": {},
        "timezone": "browser",
        "title": one.title,
        "uid": f"group-sidecar-{one.name}",
        "version": 1,
    }


def _placed(rows: Sequence[Row]) -> Iterator[Json]:
    number, top = 0, 0
    for row in rows:
        number += 1
        yield {
            "collapsed": False,
            "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": top},
            "id": number,
            "panels": [],
            "title": row.title,
            "type": "row",
        }
        top += 1
        left = tallest = 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                left, top, tallest = 0, top + tallest, 0
            number += 1
            yield _panel(panel, number, {"h": panel.height, "w": panel.width, "x": left, "y": top})
            left, tallest = left + panel.width, max(tallest, panel.height)
        top += tallest


def _panel(panel: Panel, number: int, place: Json) -> Json:
    return {
        "datasource": DATASOURCE,
        "description": panel.description,
        "fieldConfig": {"defaults": {"unit": panel.unit, **panel.defaults}, "overrides": []},
        "gridPos": place,
        "id": number,
        "options": dict(panel.options),
        "targets": [_target(query, letter) for letter, query in zip(ascii_uppercase, panel.queries, strict=False)],
        "title": panel.title,
        "transformations": list(panel.transformations),
        "type": panel.kind,
    }


def _target(query: Query, letter: str) -> Json:
    return {
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": query.expr,
        "format": query.form,
        "instant": query.form == "table",
        "legendFormat": query.legend or "__auto",
        "range": query.form != "table",
        "refId": letter,
    }


def _datasource() -> Json:
    return {
        "hide": 0,
        "includeAll": False,
        "label": "Prometheus",
        "multi": False,
        "name": "datasource",
        "options": [],
        "query": "prometheus",
        "refresh": 1,
        "regex": "",
        "type": "datasource",
    }


def _variable(variable: Variable) -> Json:
    told: Json = {
        "datasource": DATASOURCE,
        "definition": variable.query,
        "hide": 0,
        "includeAll": variable.several,
        "label": variable.label,
        "multi": variable.several,
        "name": variable.name,
        "options": [],
        "query": {"query": variable.query, "refId": "StandardVariableQuery"},
        "refresh": 2,
        "regex": "",
        "sort": 1,
        "type": "query",
    }
    if variable.several:
        # `.*` also matches series that lack the label, as `cluster` is often absent.
        told |= {"allValue": ".*", "current": {"selected": True, "text": ["All"], "value": ["$__all"]}}
    return told
