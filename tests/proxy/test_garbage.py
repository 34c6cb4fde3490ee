"""The search for cyclic garbage: short, whatever is kept, and never amid a long message."""

import gc
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from group_sidecar.codecs.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from group_sidecar.proxy import desk
from group_sidecar.proxy.garbage import LONG_FRAME, Undisturbed
from tests.kafka.processes import PATIENCE
from tests.proxy.playbook import Line, certain_copy

KEPT = """
import gc, weakref
from group_sidecar.proxy import garbage

class Node: ...

garbage.keep_short()
kept, most, lost = [], 0, []
for number in range(300_000):
    kept.append([number])
    if number % 1_000 == 0:
        node = Node()
        node.itself = node
        lost.append(weakref.ref(node))
        del node
        most = max(most, len(gc.get_objects()))
assert gc.get_freeze_count() > 250_000, gc.get_freeze_count()
assert most < 30_000 + START, most
assert not any(each() for each in lost[:-20])
"""


def test_what_is_kept_is_not_searched_again_and_what_is_lost_is_found() -> None:
    """In a process of its own, as it is for the whole process. Its start has some objects that are not set aside."""
    start = "import gc\nSTART = len(gc.get_objects())\n"
    subprocess.run([sys.executable, "-c", start + KEPT], check=True, timeout=PATIENCE)


@pytest.fixture
def enabled() -> Iterator[None]:
    """The search is on, as in a sidecar."""
    gc.enable()
    yield
    gc.enable()


def test_a_pause_ends_also_where_something_fails(enabled: None) -> None:
    with suppress(ValueError), Undisturbed():
        assert not gc.isenabled()
        raise ValueError
    assert gc.isenabled()


def test_a_pause_within_a_pause_does_not_end_it(enabled: None) -> None:
    with Undisturbed():
        with Undisturbed():
            pass
        assert not gc.isenabled()


def test_a_long_message_is_understood_undisturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[str] = []

    class Noted(Undisturbed):
        def __enter__(self) -> None:
            pauses.append("begun")
            super().__enter__()

    monkeypatch.setattr(desk, "Undisturbed", Noted)
    line = Line(certain_copy())
    for count, expected in ((1, 0), (600, 1)):
        names = tuple(f"group-{number}" for number in range(count))
        results = tuple(DeletableGroupResult(group_id=name, error_code=0) for name in names)
        request = DeleteGroupsRequest(groups_names=names)
        assert (len(line.frame(request, 2)) > LONG_FRAME) is (count > 1)
        line.says(request, 2)
        line.broker_says(DeleteGroupsResponse(throttle_time_ms=0, results=results), 2)
        assert len(pauses) == expected
