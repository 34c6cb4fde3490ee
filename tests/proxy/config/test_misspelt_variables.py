"""Environment variables that look like settings and are none."""

import pytest

from group_sidecar.proxy.commandline import fleet, target
from group_sidecar.proxy.config.misspelt_variables import OTHER_VARIABLES, unused_variables


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("GROUP_SIDECAR_LIMITS_CONNECTIONS", "is not used; did you mean GROUP_SIDECAR__LIMITS__CONNECTIONS?"),
        ("GROUP_SIDECAR_LIMITS__CONNECTIONS", "is not used; did you mean GROUP_SIDECAR__LIMITS__CONNECTIONS?"),
        ("group_sidecar_listen", "is not used; did you mean GROUP_SIDECAR__LISTEN?"),
        ("GROUP_SIDECAR_LISTN", "is not used; did you mean GROUP_SIDECAR__LISTEN?"),
        (
            "GROUP_SIDECAR_POLICIES_GROUP_MAX_SIZE_LIMIT",
            "is not used; did you mean GROUP_SIDECAR__POLICIES__GROUP_MAX_SIZE__LIMIT?",
        ),
        ("GROUP_SIDECAR_QQQQ", "is not used, because it is no setting"),
    ],
)
def test_unused_variable_is_reported(name: str, reason: str) -> None:
    """A variable with one underscore in place of two, or with an unknown name, is reported."""
    assert list(unused_variables({name: "5"})) == [(name, reason)]


@pytest.mark.parametrize(
    "name",
    [
        "GROUP_SIDECAR__LIMITS__CONNECTIONS",
        "GROUP_SIDECAR__LISTN",  # `load_config` refuses this name.
        "GROUP_SIDECAR_SERVICE_HOST",
        "GROUP_SIDECAR_SERVICE_PORT",
        "GROUP_SIDECAR_SERVICE_PORT_KAFKA",
        "GROUP_SIDECAR_PORT",
        "GROUP_SIDECAR_PORT_9092_TCP",
        "GROUP_SIDECAR_PORT_9092_TCP_ADDR",
        "GROUP_SIDECAR_EAST_SERVICE_HOST",
        "GROUP_SIDECAR_EAST_PORT_9092_TCP_PROTO",
        "_GROUP_SIDECAR_COMPLETE",
        "LISTEN",
        *sorted(OTHER_VARIABLES),
    ],
)
def test_other_variables_are_ignored(name: str) -> None:
    """Settings, the variables of other commands, and the links to Kubernetes services are not reported."""
    assert list(unused_variables({name: "tcp://10.0.0.1:9092"})) == []


def test_variables_of_commands_are_complete() -> None:
    """All variables that the other commands read are known."""
    commands = {target.TOKEN, target.TOKEN_FILE, target.CA_FILE, target.COMMAND_CONFIG, fleet.PROGRAM_VARIABLE}
    assert {*commands, *target.TARGET_VARIABLES.values()} <= OTHER_VARIABLES
