"""Encodings that no client writes: our codecs accept what Kafka's own classes accept, with the same value.

Otherwise a request that only the broker can decode would bypass every policy.
"""

import re
from collections.abc import Iterable, Iterator

import pytest

from group_sidecar.codecs.api_registry import APIS
from group_sidecar.codecs.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from group_sidecar.codecs.headers import body_start, decode_request_header
from group_sidecar.codecs.messages.describe_acls import DescribeAclsRequest
from group_sidecar.codecs.messages.produce import ProduceRequest, acks_of
from group_sidecar.codecs.offsets_topic import VALUES
from group_sidecar.codecs.offsets_topic_values import ConsumerGroupMemberMetadataValue
from group_sidecar.codecs.schema import Struct, decode_start
from tests.codecs import odd_encodings
from tests.codecs.conftest import KAFKA
from tests.codecs.declarations import MESSAGES, case_id
from tests.codecs.kafka_judge import Body, Case, Frame, Refused, Value, Verdict, by_kafka, by_old_kafka
from tests.codecs.kafka_schemas import KafkaSchemas
from tests.kafka.maven import kafka_jars

FEW, MANY = 12, 250
"""How many encodings of each message and version are tested: in every run, and in tests that are marked `long`."""
SEEDS = 3
IN_BYTES: list[type[Struct]] = [ConsumerProtocolSubscription, ConsumerProtocolAssignment]
"""Messages in the bytes fields of JoinGroup and SyncGroup. Kafka's classes of these messages have all versions."""
RECORDED = [cls for cls in dict.fromkeys(VALUES.values()) if cls is not ConsumerGroupMemberMetadataValue]
"""Values in the offsets topic, except for the one whose tagged field is decoded by hand."""
NEWEST_ALONE = re.compile(r"Tag \d+ is not valid for version|negative number of tagged fields")
"""Reasons for which only the newest Kafka refuses bytes. Our codecs accept these bytes like earlier versions of Kafka,
so that no policy can be bypassed there."""

every_message = pytest.mark.parametrize("cls", MESSAGES, ids=case_id)
Judged = dict[type[Struct], list[tuple[Case, Verdict]]]


def cases(cls: type[Struct], versions: Iterable[int], count: int, seed: int = 0) -> Iterator[Case]:
    """Yields odd bodies of a message, and for a request also odd frames."""
    for version in versions:
        if version not in cls.VERSIONS:
            continue
        yield from (Body(cls, version, data) for data in odd_encodings.bodies(cls, version, count, seed))
        # For a frame, Kafka also checks the meaning of values: it refuses a DescribeAcls with unknown numbers.
        if cls.NAME.endswith("Request") and cls is not DescribeAclsRequest:
            yield from (Frame(cls, version, data) for data in odd_encodings.frames(cls, version, count, seed))


def judged(given: Iterable[Case], version: str) -> Judged:
    """Returns each case with Kafka's verdict."""
    asked = list(given)
    verdicts: Judged = {}
    for case, verdict in zip(asked, by_kafka(asked, version), strict=True):
        verdicts.setdefault(case.cls, []).append((case, verdict))
    return verdicts


def differences(verdicts: Iterable[tuple[Case, Verdict]], *, newest: bool = True) -> list[tuple[Case, Verdict]]:
    """Returns the cases in which the verdicts of our codecs and of Kafka differ.

    `newest`: whether the verdicts are those of the newest Kafka. An earlier Kafka may refuse more than our codecs.
    """
    found = []
    for case, kafka in verdicts:
        ours = case.ours()
        if isinstance(kafka, Refused):
            same = isinstance(ours, Refused) or not newest or NEWEST_ALONE.search(kafka.reason) is not None
        else:
            same = ours == kafka
        if not same:
            found.append((case, kafka))
    return found


@pytest.fixture(scope="module")
def verdicts(kafka_schemas: KafkaSchemas) -> Judged:
    """A few odd encodings of all messages and versions, with the verdicts of the newest Kafka."""
    given = (case for cls in MESSAGES for case in cases(cls, kafka_schemas.versions(cls.NAME), FEW))
    return judged(given, KAFKA)


@every_message
def test_odd_encodings_match_kafka(cls: type[Struct], verdicts: Judged) -> None:
    """Our codecs accept and refuse the same odd encodings of a message as Kafka, and read the same values."""
    assert differences(verdicts[cls]) == []


def test_corpus_balances_valid_and_invalid(verdicts: Judged) -> None:
    """Kafka accepts between 50 and 90 percent of the odd encodings."""
    accepted = [isinstance(verdict, Value) for each in verdicts.values() for _, verdict in each]
    assert 0.5 < sum(accepted) / len(accepted) < 0.9


def test_acks_match_kafka(verdicts: Judged) -> None:
    """acks_of finds the acks of odd Produce requests that Kafka accepts."""
    frames = [(case, v) for case, v in verdicts[ProduceRequest] if isinstance(case, Frame) and isinstance(v, Value)]
    assert len(frames) > FEW
    for case, _ in frames:
        flexible = APIS[ProduceRequest.KEY].flexible(case.version)
        _, body = decode_request_header(case.data, flexible)
        assert body_start(case.data, flexible) == len(case.data) - len(body)
        assert acks_of(case.version, body) == decode_start(ProduceRequest, case.version, body)[0].acks


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_many_odd_encodings_match_kafka(seed: int, kafka_schemas: KafkaSchemas) -> None:
    """Our codecs accept and refuse the same odd encodings as Kafka, and read the same values, with several seeds."""
    given = (case for cls in MESSAGES for case in cases(cls, kafka_schemas.versions(cls.NAME), MANY // 2, seed))
    assert [found for each in judged(given, KAFKA).values() for found in differences(each)] == []


@pytest.mark.long
def test_odd_records_match_kafka() -> None:
    """Our codecs treat odd bytes of consumer protocol messages and of offsets topic values as Kafka does."""
    given = [case for cls in [*IN_BYTES, *RECORDED] for case in cases(cls, cls.VERSIONS, MANY)]
    assert [found for each in judged(given, KAFKA).values() for found in differences(each)] == []


@pytest.mark.long
@pytest.mark.parametrize("release", ["2.8.2", "3.9.1", "4.3.1"])
def test_earlier_kafka_accepts_no_more(release: str) -> None:
    """Our codecs accept the odd request bodies that an earlier Kafka accepts, and read the same values."""
    jars = kafka_jars(release)
    schemas = KafkaSchemas(jars / f"kafka-clients-{release}.jar")
    # A reply may have tagged fields that an earlier Kafka does not know. Requests have none of these.
    known = [api.request for api in APIS.values() if schemas.has(api.request.NAME)]
    bodies = [
        case for cls in known for case in cases(cls, schemas.versions(cls.NAME), MANY // 5) if isinstance(case, Body)
    ]
    for each in judged(bodies, release).values():
        assert differences(each, newest=False) == []


@pytest.mark.long
@pytest.mark.parametrize("release", ["0.9.0.1", "0.10.1.1", "1.1.1"])
def test_old_kafka_schemas_accept_no_more(release: str) -> None:
    """Odd bodies that the schemas of an old Kafka accept are accepted here with the same value."""
    given = (case for cls in MESSAGES for case in cases(cls, cls.VERSIONS, MANY // 5))
    bodies = [case for case in given if isinstance(case, Body)]
    found = zip(bodies, by_old_kafka(bodies, release), strict=True)
    verdicts = [(body, verdict) for body, verdict in found if verdict is not None]
    assert len(verdicts) > 1_000
    assert differences(verdicts, newest=False) == []
