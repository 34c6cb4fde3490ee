"""The record contract: encoding, decoding, and the page that is generated from it."""

import json
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.metrics import records
from group_sidecar.metrics.records import (
    BODIES,
    Audit,
    Body,
    Commit,
    Envelope,
    Group,
    Heartbeat,
    LogEnd,
    Member,
    Rebalance,
    Record,
    Refusal,
    columns,
    timestamp,
)

ENVELOPE = {
    "version": 1,
    "sidecar": "broker-1",
    "boot": "0123456789abcdef0123456789abcdef",
    "seq": 7,
    "observed_at": "2025-01-31T09:30:00.250Z",
    "emitted_at": "2025-01-31T09:30:01.000Z",
}

VERDICT: dict[str, Any] = {
    "group": "orders",
    "policy": "group_max_size",
    "error_code": 77,
    "client_id": "c",
    "client_host": "/127.0.0.1",
    "principal": "User:CN=alice",
    "size": 2,
    "limit": 2,
}

KNOWN: list[tuple[Body, dict[str, object]]] = [
    (
        Heartbeat(sample={"groups": 3.0}),
        {"kind": "heartbeat", "sample": {"groups": 3.0}},
    ),
    (
        Group(
            group="orders",
            protocol="classic",
            state="Stable",
            protocol_type="consumer",
            assignor="range",
            generation=4,
            members=2,
            max_size=None,
        ),
        {
            "kind": "group",
            "group": "orders",
            "protocol": "classic",
            "state": "Stable",
            "protocol_type": "consumer",
            "assignor": "range",
            "generation": 4,
            "members": 2,
            "max_size": None,
        },
    ),
    (
        Commit(group="orders", topic="t", partition=0, offset=42, leader_epoch=-1),
        {"kind": "commit", "group": "orders", "topic": "t", "partition": 0, "offset": 42, "leader_epoch": -1},
    ),
    (
        LogEnd(topic="t", partition=0, offset=50),
        {"kind": "log_end", "topic": "t", "partition": 0, "offset": 50},
    ),
    (
        Rebalance(group="orders", generation=4, reason="join", cause="new_member", duration_seconds=0.5, members=2),
        {
            "kind": "rebalance",
            "group": "orders",
            "generation": 4,
            "reason": "join",
            "cause": "new_member",
            "duration_seconds": 0.5,
            "members": 2,
        },
    ),
    (Refusal(**VERDICT), {"kind": "refusal", **VERDICT}),
    (Audit(**VERDICT), {"kind": "audit", **VERDICT}),
    (
        Member(
            group="orders",
            member_id="c-1",
            instance_id=None,
            client_id="c",
            client_host="/127.0.0.1",
            principal="User:CN=alice",
            change="joined",
        ),
        {
            "kind": "member",
            "group": "orders",
            "member_id": "c-1",
            "instance_id": None,
            "client_id": "c",
            "client_host": "/127.0.0.1",
            "principal": "User:CN=alice",
            "change": "joined",
        },
    ),
]


def test_examples_cover_every_kind() -> None:
    """There is an example of every record kind, in the order of BODIES."""
    assert [type(body) for body, _ in KNOWN] == list(BODIES)


def test_audit_is_no_refusal() -> None:
    """An audit record differs from a refusal in class and kind."""
    assert not isinstance(Audit(**VERDICT), Refusal)
    assert Audit.KIND != Refusal.KIND


def record(body: Body) -> Record:
    return Record(envelope=Envelope(**ENVELOPE, kind=body.KIND), body=body)  # type: ignore[arg-type]


@pytest.mark.parametrize(("body", "cells"), KNOWN, ids=[body.KIND for body, _ in KNOWN])
def test_line_of_each_kind(body: Body, cells: dict[str, object]) -> None:
    """A record of each kind is written as the expected line and read back."""
    line = record(body).to_line()
    assert json.loads(line) == ENVELOPE | cells
    assert Record.from_line(line) == record(body)


counts = st.integers(min_value=0, max_value=2**63 - 1)
texts = st.text(max_size=40)
finite = st.floats(allow_nan=False, allow_infinity=False)
moments = st.floats(min_value=0, max_value=2**32).map(timestamp)
bodies = st.one_of(
    st.builds(Heartbeat, sample=st.dictionaries(texts, finite, max_size=4)),
    st.builds(
        Group,
        group=texts,
        protocol=texts,
        state=texts,
        protocol_type=texts,
        assignor=texts,
        generation=st.integers(-1, 2**31 - 1),
        members=counts,
        max_size=st.none() | counts,
    ),
    st.builds(Commit, group=texts, topic=texts, partition=counts, offset=counts, leader_epoch=st.integers(-1, 99)),
    st.builds(LogEnd, topic=texts, partition=counts, offset=counts),
    st.builds(
        Rebalance, group=texts, generation=counts, reason=texts, cause=texts, duration_seconds=finite, members=counts
    ),
    *(
        st.builds(
            kind,
            group=texts,
            policy=texts,
            error_code=st.integers(-1, 200),
            client_id=texts,
            client_host=texts,
            size=counts,
            limit=counts,
        )
        for kind in (Refusal, Audit)
    ),
    st.builds(
        Member,
        group=texts,
        member_id=texts,
        instance_id=st.none() | texts,
        client_id=texts,
        client_host=texts,
        change=texts,
    ),
)


@given(body=bodies, seq=st.integers(1, 2**63 - 1), sidecar=texts, observed_at=moments, emitted_at=moments)
def test_round_trip(
    body: Body, seq: int, sidecar: str, observed_at: records.Timestamp, emitted_at: records.Timestamp
) -> None:
    """Any record is written as one line and read back unchanged."""
    envelope = Envelope(
        version=1,
        kind=body.KIND,
        sidecar=sidecar,
        boot="b",
        seq=seq,
        observed_at=observed_at,
        emitted_at=emitted_at,
    )
    line = Record(envelope=envelope, body=body).to_line()
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert b"\r" not in line
    assert Record.from_line(line) == Record(envelope=envelope, body=body)


def test_text_is_not_escaped() -> None:
    """Text outside ASCII is written as UTF-8, not as escapes."""
    assert "größe".encode() in record(LogEnd(topic="größe", partition=0, offset=0)).to_line()


def test_lone_surrogate_becomes_an_escape() -> None:
    """A lone surrogate in a text is written as a JSON escape."""
    assert rb'"topic":"t\ud800"' in record(LogEnd(topic="t\ud800", partition=0, offset=0)).to_line()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"version": 2}, "version 1"),
        ({"version": None}, "version 1"),
        ({"kind": "weather"}, "weather"),
        ({"kind": ["log_end"]}, "log_end"),
    ],
)
def test_unknown_version_or_kind_is_refused(change: dict[str, object], complaint: str) -> None:
    """A line with an unknown version or kind raises ValueError."""
    cells = json.loads(record(LogEnd(topic="t", partition=0, offset=0)).to_line()) | change
    with pytest.raises(ValueError, match=complaint):
        Record.from_line(json.dumps(cells).encode())


@pytest.mark.parametrize("name", ["seq", "offset"])
def test_missing_column_is_refused(name: str) -> None:
    """A line without a required column raises a ValueError with the column's name."""
    cells = json.loads(record(LogEnd(topic="t", partition=0, offset=0)).to_line())
    del cells[name]
    with pytest.raises(ValueError, match=f"lacks {name}"):
        Record.from_line(json.dumps(cells).encode())


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"7", b"null", b"\xff\xfe"])
def test_invalid_line_is_refused(line: bytes) -> None:
    """A line that is not a JSON object raises ValueError."""
    with pytest.raises(ValueError):
        Record.from_line(line)


@pytest.mark.parametrize("body", [body for body, cells in KNOWN if "principal" in cells], ids=lambda body: body.KIND)
def test_column_of_newer_sidecars_may_be_missing(body: Any) -> None:
    """A column that may be null is null if a line lacks it, as in records of older sidecars."""
    cells = json.loads(record(body).to_line())
    del cells["principal"]
    assert Record.from_line(json.dumps(cells).encode()).body == replace(body, principal=None)


def test_deeply_nested_line_is_refused() -> None:
    """A line that is nested more deeply than the parser allows raises ValueError (found by the fuzzer)."""
    with pytest.raises(ValueError, match="nested too deeply"):
        Record.from_line(b"[" * 100_000)


def test_unknown_columns_are_ignored() -> None:
    """Unknown columns of a line are ignored."""
    cells = json.loads(record(LogEnd(topic="t", partition=0, offset=0)).to_line()) | {"colour": "red"}
    assert Record.from_line(json.dumps(cells).encode()).body == LogEnd(topic="t", partition=0, offset=0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1738315800.25, "2025-01-31T09:30:00.250Z"),
        (1738315800.9999, "2025-01-31T09:30:00.999Z"),
    ],
)
def test_timestamp(seconds: float, text: str) -> None:
    """timestamp formats seconds as UTC with milliseconds, rounded down."""
    assert timestamp(seconds) == text


def test_shared_column_has_one_type() -> None:
    """A column that several record kinds share has one SQL type."""
    types: dict[str, set[str]] = defaultdict(set)
    parts: tuple[type[Envelope | Body], ...] = (Envelope, *BODIES)
    for part in parts:
        for column in columns(part):
            types[column.name].add(column.sql_type)
    assert {name: kinds for name, kinds in types.items() if len(kinds) > 1} == {}


def test_body_columns_differ_from_envelope() -> None:
    """No record kind has a column with the name of an envelope column."""
    own = {column.name for column in columns(Envelope)}
    assert all(own.isdisjoint(column.name for column in columns(body)) for body in BODIES)


def test_document_is_current_and_standalone() -> None:
    """The records page equals the contract module's output, which needs only the standard library."""
    contract = Path(records.__file__).resolve()
    made = subprocess.run([sys.executable, "-I", "-S", contract], capture_output=True, check=True)
    document = contract.parent.parent / "docs" / "records.md"
    assert made.stdout == document.read_bytes()
