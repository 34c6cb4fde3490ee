"""Tests the settings for local answers."""

import pytest

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.coordinator.model.views import FallbackReason
from group_sidecar.proxy.broker.answer_settings import LOCAL_APIS, AnswerSettings
from group_sidecar.proxy.config.sections import Answers

LIST, DESCRIBE, FETCH = ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS, ApiKey.OFFSET_FETCH


@pytest.mark.parametrize(("enabled", "disabled_reason"), [(True, None), (False, FallbackReason.OFF)])
def test_disabled_answers_have_reason(enabled: bool, disabled_reason: FallbackReason | None) -> None:
    """Every API has the reason OFF if answers are disabled, and no reason otherwise."""
    settings = AnswerSettings(Answers(enabled=enabled))
    assert settings.enabled is enabled
    assert {settings.disabled_reason(key) for key in LOCAL_APIS} == {disabled_reason}


def test_only_configured_apis_are_answered() -> None:
    """An API that the configuration does not name has the reason OFF."""
    settings = AnswerSettings(Answers(apis=("DescribeGroups",)))
    assert [settings.disabled_reason(key) for key in (LIST, DESCRIBE, FETCH)] == [
        FallbackReason.OFF,
        None,
        FallbackReason.OFF,
    ]


@pytest.mark.parametrize(
    ("answers", "rewrites"),
    [
        (Answers(), True),
        (Answers(client_host="broker"), False),
        (Answers(enabled=False), False),
        (Answers(apis=("ListGroups",)), False),
    ],
    ids=["default", "the broker's hosts", "disabled", "another API"],
)
def test_true_hosts_are_rewritten_where_answered(answers: Answers, rewrites: bool) -> None:
    """If the sidecar answers DescribeGroups with its clients' hosts, it writes them into the broker's replies too."""
    assert AnswerSettings(answers).rewrites_client_hosts(DESCRIBE) is rewrites
