"""The variables of all dashboards, the selectors that use them, and common PromQL expressions.

Metrics of one sidecar have the label `instance`. Metrics that recording rules aggregate over sidecars do not have it.
"""

from deploy.grafana.panels import Variable

CLUSTER = Variable("cluster", "Cluster", "label_values(group_sidecar_build_info, cluster)")
JOB = Variable("job", "Job", 'label_values(group_sidecar_build_info{cluster=~"$cluster"}, job)')
INSTANCE = Variable(
    "instance", "Sidecar", 'label_values(group_sidecar_build_info{cluster=~"$cluster", job=~"$job"}, instance)'
)
GROUP = Variable(
    "group",
    "Group",
    'label_values(group_state:group_sidecar_group_info:latest{cluster=~"$cluster", job=~"$job"}, group)',
    several=False,
)
TOPIC = Variable(
    "topic",
    "Topic",
    'label_values(group_topic:group_sidecar_lag:sum{cluster=~"$cluster", job=~"$job", group="$group"}, topic)',
)

IN_FLEET = 'cluster=~"$cluster", job=~"$job"'
OF_SIDECARS = f'{IN_FLEET}, instance=~"$instance"'
OF_GROUP = f'{IN_FLEET}, group="$group"'
OF_TOPICS = f'{OF_GROUP}, topic=~"$topic"'
OF_LOGS = f'{IN_FLEET}, topic=~"$topic"'
REBALANCING = 'state=~"PreparingRebalance|CompletingRebalance|Assigning|Reconciling"'


def rate(metric: str, by: str = "", matching: str = "") -> str:
    """Returns the rate per second over the chosen sidecars.

    `metric` is a name without its prefix. `by` names the labels that are kept.
    """
    selector = f"{OF_SIDECARS}, {matching}" if matching else OF_SIDECARS
    return f"sum{f' by ({by})' if by else ''} (rate(group_sidecar_{metric}{{{selector}}}[$__rate_interval]))"


def quantile(share: float, metric: str, by: str = "") -> str:
    """Returns the value below which this share of a histogram's observations lies. `metric` and `by`: see `rate`."""
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', f'{by}, le' if by else 'le')})"


def each(metric: str, by: str = "instance") -> str:
    """Returns a gauge of the chosen sidecars, summed by a label. `metric` is the whole name of the gauge."""
    return f"sum by ({by}) ({metric}{{{OF_SIDECARS}}})"
