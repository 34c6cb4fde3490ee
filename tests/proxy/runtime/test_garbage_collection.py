"""Tests that garbage collections are short, whatever is kept, and do not happen while a long frame is decoded."""

import gc
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from group_sidecar.codecs.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from group_sidecar.proxy.handlers import dispatcher
from group_sidecar.proxy.runtime.garbage_collection import LONG_FRAME, CollectionPaused
from tests.kafka.processes import GIVE_UP_SECONDS
from tests.proxy.dataplane.playbook import Line, complete_state

KEPT = """
import gc, weakref
from group_sidecar.proxy.runtime import garbage_collection

class Node: ...

garbage_collection.keep_collections_short()
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


def test_kept_objects_are_frozen() -> None:
    """The collector skips long-lived objects and still frees lost cycles. Its settings need a separate process."""
    start = "import gc\nSTART = len(gc.get_objects())\n"
    subprocess.run([sys.executable, "-c", start + KEPT], check=True, timeout=GIVE_UP_SECONDS)


@pytest.fixture
def enabled() -> Iterator[None]:
    """Enables short collections, as in a sidecar."""
    gc.enable()
    yield
    gc.enable()


def test_collection_pause_ends_on_exception(enabled: None) -> None:
    """A collection pause ends if its block raises an exception."""
    with suppress(ValueError), CollectionPaused():
        assert not gc.isenabled()
        raise ValueError
    assert gc.isenabled()


def test_nested_pause_keeps_outer_pause(enabled: None) -> None:
    """A nested collection pause does not end the outer pause."""
    with CollectionPaused():
        with CollectionPaused():
            pass
        assert not gc.isenabled()


def test_long_frame_pauses_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dispatcher pauses garbage collection while it decodes a long frame, but not for a short one."""
    pauses: list[str] = []

    class Noted(CollectionPaused):
        def __enter__(self) -> None:
            pauses.append("begun")
            super().__enter__()

    monkeypatch.setattr(dispatcher, "CollectionPaused", Noted)
    line = Line(complete_state())
    for count, expected in ((1, 0), (600, 1)):
        names = tuple(f"group-{number}" for number in range(count))
        results = tuple(DeletableGroupResult(group_id=name, error_code=0) for name in names)
        request = DeleteGroupsRequest(groups_names=names)
        assert (len(line.frame(request, 2)) > LONG_FRAME) is (count > 1)
        line.sends(request, 2)
        line.broker_replies(DeleteGroupsResponse(throttle_time_ms=0, results=results), 2)
        assert len(pauses) == expected
