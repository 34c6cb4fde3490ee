"""The sidecar decodes strings that are not UTF-8 as the broker does. Their replies are equal byte by byte.

Kafka decodes malformed bytes as U+FFFD. Therefore different byte strings name the same group, and the group's limit
applies to all of them.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from group_sidecar.codecs.consumer_protocol import ConsumerProtocolSubscription
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.join_group import JoinGroupProtocol, JoinGroupRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.offset_commit import OffsetCommitRequest
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from group_sidecar.codecs.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from group_sidecar.codecs.primitives import decoded
from group_sidecar.codecs.schema import Struct, encode
from tests.conformance.librdkafka import create_topic
from tests.conformance.routes import Route, Run
from tests.conformance.test_exclusive import DESCRIBE_VERSIONS, FETCH_VERSIONS, Pair, by_id
from tests.kafka.broker import KafkaBroker
from tests.kafka.group_members import MINUTES, offsets_to_commit, succeeded
from tests.kafka.processes import Address
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.wire import Wire

ODD = {
    "<group>": b"g\xff\xed\xa0\x80\xc3",
    "<client>": b"c\xe2\x82A\xf0\x9f\x92",
    "<instance>": b"i\xed\xbf\xbf\xc0\x80\xf4\x90\x80",
    "<protocol>": b"p\xfe\xed\xa0A\x80\xe0\x9f\xf8",
    "<metadata>": b"m\xff\xff\xf1\x80\xff\xed\xae\x80",
    "<stranger>": b"s\xff\xed\xa0\x80\xc3\xff\xff\xff",
}
"""The bytes that replace these words."""
SAME_GROUP = "g\ufffd\ufffd\ufffd"
SUBSCRIPTION = b"\0\0" + encode(ConsumerProtocolSubscription(topics=()), 0)
REJECTIONS = "group_sidecar_policy_rejections_total"


class OddWire(Wire):
    """A connection that replaces certain words by odd bytes."""

    def __init__(self, address: Address) -> None:
        super().__init__(address, client_id=odd("<client>"))

    def send(self, data: bytes) -> None:
        """Sends bytes in which the words are replaced."""
        for word in ODD:
            data = data.replace(odd(word).encode(), ODD[word])
        super().send(data)


def odd(word: str) -> str:
    """Returns the word, padded to the length of the bytes that replace it."""
    return word[:1] + word[1:2] * (len(ODD[word]) - 2) + word[-1:]


def raw_answer(address: Address, request: Struct, version: int) -> bytes:
    """Sends a request. Returns the bytes of the reply."""
    with OddWire(address) as wire:
        wire.send_request(request, version)
        return wire.receive()


def own_answer(pair: Pair, api: str, request: Struct, version: int) -> bytes:
    """Returns the sidecar's own reply. Asserts that the sidecar answered, and that the broker's reply is equal."""
    direct, before = raw_answer(pair.broker, request, version), pair.answers(api)
    own = raw_answer(pair.sidecar.listen, request, version)
    assert pair.answers(api) == before + 1, "the sidecar left the question to the broker"
    assert own == direct
    return own


def join(group: str, instance: str | None = None) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        member_id="",
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=(JoinGroupProtocol(name=odd("<protocol>"), metadata=SUBSCRIPTION),),
        session_timeout_ms=MINUTES,
        rebalance_timeout_ms=MINUTES,
    )


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A broker with a limit of one member, and a group of one member and one offset whose strings are all odd."""
    folder = tmp_path_factory.mktemp("odd")
    with KafkaBroker(folder / "broker") as broker, limited(folder, broker) as sidecar:
        # While a broker creates its offsets topic, it returns NOT_COORDINATOR, which puts its groups in doubt.
        broker.wait_for_coordinator()
        sidecar.wait_for_log()
        run = Run(Route("sidecar", broker.sidecar, broker.sidecar), "odd")
        create_topic(run, "topic", 1)
        with OddWire(sidecar.listen) as wire:
            populate(wire, run.name("topic"))
            yield Pair(broker.direct, sidecar, run)


def limited(folder: Path, broker: KafkaBroker) -> SidecarProcess:
    settings = {"answers": {"exclusive": True}, "policies": {"group_max_size": {"limit": 1, "error_code": 81}}}
    return SidecarProcess(folder, listen=broker.sidecar, upstream=broker.client, settings=settings)


def populate(wire: OddWire, topic: str) -> None:
    group, instance = odd("<group>"), odd("<instance>")
    joined = succeeded(wire.ask(join(group, instance), 5))
    who = {
        "group_id": group,
        "member_id": joined.member_id,
        "group_instance_id": instance,
    }
    assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")
    succeeded(wire.ask(SyncGroupRequest(generation_id=joined.generation_id, assignments=(assignment,), **who), 3))
    topics = offsets_to_commit(topic, {0: 7}, odd("<metadata>"))
    commit = OffsetCommitRequest(generation_id_or_member_epoch=joined.generation_id, topics=topics, **who)
    succeeded(wire.ask(commit, 7))


def test_group_is_listed_under_brokers_name(pair: Pair) -> None:
    """A group id with invalid UTF-8 is listed as the string that the broker lists."""
    direct, own = pair.own("ListGroups", ListGroupsRequest(), 5)
    assert by_id(own) == by_id(direct)
    assert decoded(ODD["<group>"]) == SAME_GROUP
    assert SAME_GROUP in {group.group_id for group in own.groups}


@pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
def test_description_is_byte_identical(pair: Pair, version: int) -> None:
    """The sidecar's own description of a group with invalid UTF-8 strings equals the broker's byte for byte."""
    described = own_answer(pair, "DescribeGroups", DescribeGroupsRequest(groups=(odd("<group>"),)), version)
    assert SAME_GROUP.encode() in described
    for word in ("<client>", "<protocol>", *(["<instance>"] if version >= 4 else [])):
        assert decoded(ODD[word]).encode() in described, word


@pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
def test_unknown_group_reply_is_byte_identical(pair: Pair, version: int) -> None:
    """The sidecar's own description of an unknown group id with invalid UTF-8 equals the broker's byte for byte."""
    reply = own_answer(pair, "DescribeGroups", DescribeGroupsRequest(groups=(odd("<stranger>"),)), version)
    assert decoded(ODD["<stranger>"]).encode() in reply


@pytest.mark.parametrize("version", FETCH_VERSIONS[1:])
def test_offsets_reply_is_byte_identical(pair: Pair, version: int) -> None:
    """The sidecar's own OffsetFetch reply for a group with invalid UTF-8 strings equals the broker's byte for byte."""
    group = odd("<group>")
    request = OffsetFetchRequest(group_id=group, topics=None)
    if version >= 8:
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=None),))
    assert decoded(ODD["<metadata>"]).encode() in own_answer(pair, "OffsetFetch", request, version)


@pytest.mark.parametrize("group", [odd("<group>"), SAME_GROUP], ids=["the same bytes", "other bytes"])
@pytest.mark.parametrize("version", JoinGroupRequest.VERSIONS[2:])
def test_limit_holds_for_all_byte_forms(pair: Pair, group: str, version: int) -> None:
    """The group size limit refuses joins under each byte form of the group id."""
    refused = pair.sidecar.metric(REJECTIONS)
    with OddWire(pair.sidecar.listen) as wire:
        assert wire.ask(join(group), version).error_code == 81
    assert pair.sidecar.metric(REJECTIONS) == refused + 1


def test_no_decode_failures(pair: Pair) -> None:
    """No request with invalid UTF-8 strings counts as a decode failure."""
    assert pair.sidecar.metric("group_sidecar_decode_failures_total") == 0
