"""The section of the configuration with the limits on memory, connections and time.

Docstrings of the section and its fields are published in docs/configuration.md.
"""

from pydantic import Field

from group_sidecar.policies.policy import WholeNumber
from group_sidecar.proxy.config.sections import Number, Positive, Section, Timeout


class Limits(Section):
    """Limits on memory, connections and time."""

    largest_frame: WholeNumber = Field(default=104_857_600, ge=1024, le=0x7FFFFFFF)
    """The maximum number of bytes of a request. A longer request closes its connection. The broker's setting is
    `socket.request.max.bytes`."""
    inspected_frame: WholeNumber = Field(default=16_777_216, ge=1024, le=0x7FFFFFFF)
    """The maximum number of bytes of a request or reply that the sidecar decodes. It forwards a longer message without
    decoding it. A longer request that an enforced policy judges closes its connection. In a gateway, a longer reply
    that may contain addresses closes its connection too, but Metadata may be as long as `limits.largest_frame`."""
    inspected_elements: WholeNumber = Field(default=3_000, ge=100)
    """The maximum number of array elements (topics and partitions together) of a commit that the sidecar decodes. It
    forwards a commit with more elements without decoding it, and the group is in doubt until the log or the broker has
    shown the group's state. A commit that a policy judges may have seven times as many elements. A join or heartbeat
    that a policy judges may have twice as many. A request with more elements closes its connection if an enforced
    policy judges it. For APIs whose elements take more time, the limit is a half, a fifth or a tenth of this: 1,500
    elements of a JoinGroup reply, 600 elements if groups are described or deleted, 300 members that leave together. If
    making an answer would take longer than decoding such a commit, the sidecar leaves the question to the broker. All
    other clients wait while the sidecar decodes a message. With the default, they wait about 5 ms if the sidecar's
    modules are compiled."""
    held_frames: WholeNumber = Field(default=268_435_456, ge=1024)
    """The maximum number of bytes of held requests, for each broker. The sidecar holds a request that arrives in pieces
    until it is complete. The request counts with its announced length, from its first piece until the broker has
    replied. Requests of up to 16 KiB do not count. If there is no room, the sidecar evicts the oldest request of the
    client address that has announced the most bytes. It also evicts an incomplete request that arrives too slowly:
    after the first `limits.stalled_seconds`, 16 KiB must have arrived for each further second. An evicted request that
    is incomplete is forwarded without decoding, or closes its connection if an enforced policy judges it. If an evicted
    request is complete and waits for its reply, the sidecar discards it, and its group is in doubt. But a join, a
    leave, a KIP-848 heartbeat, a question or a judged request closes its connection instead. Clients that the broker
    has not admitted yet, for instance before they authenticate, have a separate limit, an eighth of this. An IPv6
    network of 64 bits counts as one address."""
    connections: Positive = 10_000
    """The maximum number of client connections at a time. Further connections are closed at once. Each connection takes
    two file descriptors. If the system allows fewer descriptors, the maximum is lower."""
    connections_per_address: WholeNumber = Field(default=0, ge=0)
    """The maximum number of connections of one client address at a time, over all listeners, or 0 for no limit. Further
    connections are closed at once. All addresses of an IPv6 network of 64 bits count as one. Behind a load balancer
    that sends the PROXY header, the address in the header counts. The broker's setting is `max.connections.per.ip`,
    which has no limit by default either."""
    connections_per_principal: WholeNumber = Field(default=0, ge=0)
    """The maximum number of connections of one principal at a time, at each listener of each broker, or 0 for no limit.
    A principal is a SASL user (PLAIN and SCRAM), or without SASL the subject of the client's certificate if TLS ends at
    the sidecar (`client_auth`). A connection beyond the limit is closed: with SASL when the broker has accepted its
    last token, otherwise after its TLS handshake. A broker has no such setting."""
    accept_rate: WholeNumber = Field(default=0, ge=0)
    """The maximum number of connections per second that each listener accepts, or 0 for no limit. All connections of
    one second may come at once. The sidecar does not refuse further clients. They wait in the kernel until the sidecar
    accepts them. The broker's setting is `max.connection.creation.rate`, which has no limit by default either."""
    handshake_seconds: Number = Field(default=10, ge=1)
    """Seconds that a client may take for its PROXY header, and for its TLS handshake. The TLS handshake with the broker
    may take as long."""
    authentication_seconds: Timeout = 30
    """Seconds after which a connection is closed if the broker requires SASL at this listener and has not admitted the
    client. At least 1, or 0 for never. The default is that of `request.timeout.ms` in Kafka's clients. A broker itself
    keeps such a connection for the ten minutes of `connections.max.idle.ms`. Connections of listeners without SASL are
    not affected."""
    in_flight_requests: WholeNumber = Field(default=4_096, ge=5)
    """The maximum number of requests of one connection that have no reply yet. At this number, the sidecar does not
    read from the client until a reply arrives. The minimum is the default of `max.in.flight.requests.per.connection` in
    Kafka's clients."""
    kept_bytes: WholeNumber = Field(default=65_536, ge=16_384)
    """The maximum number of bytes of one connection's requests that the sidecar keeps until their replies. At this
    number, the sidecar does not read from the client until a reply arrives. This does not slow down the client, because
    the broker handles one request of a connection at a time. The sidecar keeps a single longer request nevertheless."""
    buffered_bytes: WholeNumber = Field(default=1_073_741_824, ge=1_048_576)
    """The maximum number of bytes that all connections hold together: bytes that a client or the broker has not
    accepted yet, requests until their replies, and incomplete frames. Beyond it, the sidecar reads at most 4 KiB at a
    time, and does not read from clients whose connections hold more than 4 KiB. No data is lost, and the sidecar serves
    other clients as before. The default has room for `limits.held_frames` with its eighth (302 MB), for 16 KiB of each
    of 10,000 connections (164 MB), and for 1,000 clients that do not accept their replies (512 KiB each, 524 MB)."""
    idle_seconds: Timeout = 900
    """Seconds without a byte after which a connection that waits for no reply is closed. At least 1, or 0 for never.
    The default is longer than the ten minutes of the broker's `connections.max.idle.ms`."""
    stalled_seconds: Number = Field(default=30, ge=1)
    """Seconds without a byte after which a connection is closed if its client has sent only a part of a request, or has
    closed its side and still has a reply to come. The default is that of `request.timeout.ms` in Kafka's clients."""
    reply_seconds: Timeout = 900
    """Seconds without a byte after which a connection is closed if its client waits for a reply, or does not accept the
    bytes of a reply. At least 1, or 0 for never. A JoinGroup may wait as long as the longer of its own two timeouts
    plus one minute, if that is more."""
    drain_seconds: Number = Field(default=5, ge=0)
    """The maximum number of seconds from SIGTERM until the last connection is closed. The sidecar stops accepting
    clients at once. It ends the connections in steps over the first half of this time. Each connection ends when its
    client has the replies to all requests that the broker received. Connections that still wait for a reply at the end
    of the time are cut. With 0, all connections are cut at once. After this time the journal may take three more
    seconds."""
    groups: Positive = 100_000
    """The maximum number of groups that are remembered. Further groups are left to the broker. The metadata and
    assignments of all members may take 2,500 bytes per group on average (at least 64 MB in all). If those of a group do
    not fit, the broker describes the group."""
    offsets: Positive = 5_000_000
    """The maximum number of committed offsets that are remembered. Metadata of commits that pass through the sidecar
    may take 50 characters per offset on average (at least 64 MB in all). Long metadata and members in the log may take
    200 bytes per offset on average (at least 64 MB in all). Beyond these limits, groups are left to the broker. If the
    log exceeds a limit, all groups of its largest partition are left to the broker."""
    rights: Positive = 200_000
    """The maximum number of authorizer grants that are remembered, for each broker. There is one grant for each group
    and topic that the broker shows to a user. Beyond the limit, the sidecar evicts grants of the user whose last grant
    is the oldest, beginning with the oldest grants."""
    remembered_answers: WholeNumber = Field(default=67_108_864, ge=0)
    """The maximum number of bytes of encoded answers about groups that are kept with their questions, for each broker.
    With 0, none are kept. One answer may take at most a quarter of the bytes. Beyond the limit, the sidecar evicts the
    answers whose questions were asked least recently."""
    flight_recorder: WholeNumber = Field(default=33_554_432, ge=0)
    """The approximate maximum number of bytes of the history that is kept of all groups: joins, leaves, rebalances,
    refusals and refused commits. With 0, no history is kept. Beyond the limit, the oldest history of groups without
    recent activity is evicted."""
