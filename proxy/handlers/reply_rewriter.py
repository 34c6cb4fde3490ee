"""Changes addresses, versions and members' hosts in the broker's replies before clients get them.

`ReplyRewriter` selects the replies to change, and builds the frame around a changed message. `address_rewrite` and
`api_versions` provide the new addresses and versions.
"""

from typing import NamedTuple

from group_sidecar.codecs.address_scan import NotScannable
from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.codecs.generated_code import NO_ELEMENT_LIMIT
from group_sidecar.codecs.headers import split_reply
from group_sidecar.codecs.messages.metadata import MetadataResponse
from group_sidecar.codecs.messages.produce import ProduceResponse
from group_sidecar.codecs.schema import Struct, decode_start, encode
from group_sidecar.coordinator.answers.true_hosts import reply_with_true_hosts
from group_sidecar.proxy.broker import address_rewrite
from group_sidecar.proxy.broker.address_rewrite import Advertise
from group_sidecar.proxy.broker.answer_settings import AnswerSettings
from group_sidecar.proxy.broker.coordinator_copy import CoordinatorCopy
from group_sidecar.proxy.broker.topic_names import TopicNames
from group_sidecar.proxy.config.limits_section import Limits
from group_sidecar.proxy.handlers.api_versions import ApiVersionsReplies

LARGEST_METADATA = 49_152
"""Maximum bytes of a Metadata reply whose topics are decoded. Decoding more would delay every connection. In a longer
reply a gateway rewrites only the brokers. A sidecar that is not a gateway forwards a longer reply unread."""
ADDRESS_APIS = frozenset({ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_CLUSTER, ApiKey.PRODUCE})
"""APIs whose replies contain addresses of brokers."""
REWRITTEN_TIMES = 7
"""A reply that a gateway rewrites may have this many times `limits.inspected_elements`: 21,000 elements by default.
Skipping an element takes 0.2 us. The limit is high, because admin clients ask for the coordinators of all their groups
at once."""
ODD_COST = 3
"""If addresses cannot be found by skipping elements (`NotScannable`), the reply is decoded. Each element then costs as
much as this many elements of a commit."""
_METADATA, _API_VERSIONS, _PRODUCE = int(ApiKey.METADATA), int(ApiKey.API_VERSIONS), int(ApiKey.PRODUCE)


class DecodedReply(NamedTuple):
    """A decoded reply. `head`: the header's bytes as received. `rest`: the bytes after the message."""

    version: int
    head: bytes
    message: Struct
    rest: bytes

    def encode_with(self, message: Struct) -> bytes:
        """Returns a whole frame with `message` in place of the decoded message."""
        payload = self.head + encode(message, self.version) + self.rest
        return len(payload).to_bytes(4, "big") + payload


def decode_reply(api_key: int, version: int, frame: bytes, max_elements: int = NO_ELEMENT_LIMIT) -> DecodedReply:
    """Decodes a reply. `frame`: without its length.

    Raises:
        DecodeError: the reply cannot be decoded.
        TooManyElements: the reply has more than `max_elements`.
    """
    response = APIS[api_key].response
    body = split_reply(frame, version >= response.HEADER_FLEXIBLE)
    message, rest = decode_start(response, version, body, max_elements)
    return DecodedReply(version, frame[: len(frame) - len(body)], message, rest)


def rewritten_apis(*, gateway: bool, kip40: bool) -> frozenset[int]:
    """Returns the APIs whose replies are decoded although their requests are not.

    `kip40`: whether GroupMetadata requests of KIP-40's draft are answered.
    """
    keys = {ApiKey.API_VERSIONS, *(ADDRESS_APIS if gateway else {ApiKey.METADATA})}
    if kip40:
        keys.add(ApiKey.FIND_COORDINATOR)
    return frozenset(keys)


class ReplyRewriter:
    """The changes to the replies of one broker.

    Args:
        api_versions: changes ApiVersions replies.
        copy: knows the true hosts of members, which are their clients' own hosts.
        topic_names: learns the names of topics.
        settings: whether true hosts replace the sidecar's host in the broker's replies.
        limits: how much of a reply is read.
        advertise: returns the address that replaces a broker's; None if no address is rewritten.

    Attributes:
        relocated_apis: APIs in whose replies the true hosts of members replace the host that the broker knows, which is
            the sidecar's.
    """

    def __init__(
        self,
        api_versions: ApiVersionsReplies,
        copy: CoordinatorCopy,
        topic_names: TopicNames,
        settings: AnswerSettings,
        limits: Limits,
        advertise: Advertise | None,
    ) -> None:
        self._api_versions = api_versions
        self._copy = copy
        self._topic_names = topic_names
        self._advertise = advertise
        self._longest = limits.inspected_frame
        self._longest_metadata = max(self._longest, limits.largest_frame) if advertise else LARGEST_METADATA
        self._max_elements = limits.inspected_elements
        self.relocated_apis = frozenset(
            filter(settings.rewrites_client_hosts, (ApiKey.DESCRIBE_GROUPS, ApiKey.CONSUMER_GROUP_DESCRIBE))
        )

    def reads(self, api_key: int, size: int) -> bool:
        """Returns whether a reply of `size` bytes is short enough to be read."""
        return size <= (self._longest_metadata if api_key == _METADATA else self._longest)

    def is_too_long(self, size: int) -> bool:
        """Returns whether a reply of `size` bytes counts as a reply that could not be decoded."""
        return size > self._longest

    def changes(self, api_key: int, version: int) -> bool:
        """Returns whether replies of a version may need a change. Produce has addresses only in tagged fields."""
        return api_key != _PRODUCE or version >= ProduceResponse.FLEXIBLE

    def must_be_read(self, api_key: int) -> bool:
        """Returns whether a reply must not be forwarded undecoded: its versions, or in a gateway its addresses, have to
        be changed.
        """
        return api_key == _API_VERSIONS or self._advertise is not None

    def rewritten(self, api_key: int, version: int, frame: bytes) -> bytes | None:
        """Returns the whole frame that the client gets for a reply that may contain versions or addresses; None if the
        broker's frame needs no change. `frame`: without its length.

        Raises:
            DecodeError: the reply cannot be decoded.
            TooManyElements: the reply has too many elements to be decoded at once.
            ValueError: the reply has an address for which the gateway has no port.
        """
        if api_key == _API_VERSIONS:
            return self._api_versions.reply(version, frame)
        advertise = self._advertise
        if api_key == _METADATA and len(frame) > LARGEST_METADATA and advertise:
            return address_rewrite.rewrite_long_metadata(version, frame, advertise)
        max_entries = REWRITTEN_TIMES * self._max_elements
        if advertise and address_rewrite.is_scannable(api_key, version):
            try:
                return address_rewrite.scan_and_rewrite(api_key, version, frame, advertise, max_entries)
            except NotScannable:
                max_entries = self._max_elements // ODD_COST
        decoded = decode_reply(api_key, version, frame, max_entries)
        if isinstance(decoded.message, MetadataResponse):
            self._topic_names.learn({t.topic_id: t.name for t in decoded.message.topics if t.name and t.topic_id.int})
        changed = address_rewrite.rewrite_addresses(decoded.message, advertise) if advertise else decoded.message
        return None if changed == decoded.message else decoded.encode_with(changed)

    def relocated(self, api_key: int, reply: Struct) -> Struct:
        """Returns descriptions of groups with the true hosts of members; `reply` itself if nothing changes."""
        if api_key not in self.relocated_apis:
            return reply
        return reply_with_true_hosts(reply, self._copy.manager.group_metadata_cache)
