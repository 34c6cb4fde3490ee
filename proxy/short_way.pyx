# cython: language_level=3
"""The short way, compiled: a small frame that comes whole goes from one socket to the other.

Owns: the frames of a round that have not left yet. On a connection that is at ease it does with such a frame what
`link`, `end` and `session` do, and leaves them everything else: what is long, comes in pieces, is taken by the desk, or
cannot be sent at once. Must not know: what frames mean, and what their notes are for.

Where it could not be compiled all goes their way, and small frames cost the more.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int16_t, int32_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

from group_sidecar.codecs.headers import REPLY_HEAD, REQUEST_HEAD
from group_sidecar.codecs.registry import ApiKey
from group_sidecar.metrics.traffic import CloseReason
from group_sidecar.proxy.commands import ToClient, ToUpstream
from group_sidecar.proxy.disposals import Shown
from group_sidecar.proxy.end import SMALL_CHUNK
from group_sidecar.proxy.framing import LENGTH_BYTES
from group_sidecar.proxy.framing import SHOW as _SHOW
from group_sidecar.proxy.poller import READY_AT_ONCE
from group_sidecar.proxy.session import KEPT_BESIDE, MOST_EXPECTED, MOST_KEPT

cdef extern from "<sys/socket.h>" nogil:
    const int MSG_DONTWAIT, MSG_NOSIGNAL
    ssize_t recv(int fd, void *data, size_t size, int flags)
    ssize_t send(int fd, const void *data, size_t size, int flags)

cdef extern from "<sys/epoll.h>" nogil:
    const int EPOLLIN

cdef extern from "ring.h" nogil:
    struct departure:
        int fd
        int32_t sent
        uint32_t size
        uint8_t *data
    struct ring:
        pass
    int ring_open(ring *, unsigned frames)
    void ring_close(ring *)
    unsigned ring_send(ring *, departure *frames, unsigned count)

cdef enum:  # As End's and the poller's: an array's size must be known here.
    ROOM = 478
    MOST_FRAMES = 64

if SMALL_CHUNK != ROOM or READY_AT_ONCE != MOST_FRAMES:
    raise ImportError("compiled for other sockets")

cdef Py_ssize_t LENGTH = LENGTH_BYTES, SMALLEST_REQUEST = REQUEST_HEAD.size, SMALLEST_REPLY = REPLY_HEAD.size
cdef Py_ssize_t MOST = MOST_EXPECTED, MOST_KEPT_BYTES = MOST_KEPT, BESIDE = KEPT_BESIDE
cdef int PRODUCE = ApiKey.PRODUCE, FETCH = ApiKey.FETCH
cdef object SHOW = _SHOW, SHOWN = Shown, new_tuple = tuple.__new__
cdef object CLIENT_CLOSED = CloseReason.CLIENT_CLOSED


cdef class ShortWay


cdef class Outbox:
    """Frames that leave when the round is over, in one system call: whoever is woken by one may take the processor, and
    would have the others wait.

    Where the kernel does not allow that, each leaves as it comes. A round has one frame for each socket at most.
    """

    cdef ring ring
    cdef departure frames[MOST_FRAMES]
    cdef unsigned count
    cdef list ways
    cdef readonly bint together

    def __cinit__(self, bint together):
        self.ways = []
        self.together = together and not ring_open(&self.ring, MOST_FRAMES)

    def __dealloc__(self):
        if self.together:
            ring_close(&self.ring)

    cdef int take(self, ShortWay way, int fd, const uint8_t *data, Py_ssize_t size) except -1:
        cdef departure *frame
        if not self.together:
            return way.left(fd, data, size, send(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL))
        if self.count == MOST_FRAMES:
            self.leave()
        frame = &self.frames[self.count]
        frame.fd, frame.size = fd, <uint32_t>size
        memcpy(frame.data, data, size)
        self.ways.append(way)
        self.count += 1

    cpdef leave(self):
        """All that waits leaves. Does not raise."""
        cdef unsigned i, done
        cdef departure *frame
        cdef ShortWay way
        if not self.count:
            return
        done = ring_send(&self.ring, self.frames, self.count) if self.count > 1 else 0
        for i in range(done, self.count):
            frame = &self.frames[i]
            frame.sent = <int32_t>send(frame.fd, frame.data, frame.size, MSG_DONTWAIT | MSG_NOSIGNAL)
        for i in range(self.count):
            frame, way = &self.frames[i], self.ways[i]
            try:
                way.left(frame.fd, frame.data, frame.size, frame.sent)
            except Exception:
                way.link.fail()
        self.ways.clear()
        self.count = 0


cdef class ShortWay:
    """Both directions of one connection, as the poller calls them."""

    cdef object link, session, desk, expected, poller, traffic, client, upstream, number
    cdef Outbox outbox
    cdef int client_fd, upstream_fd

    def __cinit__(self, link, Outbox outbox):
        self.outbox = outbox
        self.link, self.session, self.client, self.upstream = link, link.session, link.client, link.upstream
        self.desk, self.expected, self.number = self.session.desk, self.session.expected, self.session.origin.number
        self.poller, self.traffic = link.shared.poller, link.shared.traffic
        self.client_fd, self.upstream_fd = self.client.fd, self.upstream.fd

    def client_ready(self, int events):
        """The client's socket is ready."""
        cdef uint8_t data[ROOM]
        cdef Py_ssize_t came
        link = self.link
        if events != EPOLLIN or self.client.room != ROOM or not (self.session.at_ease and link.flowing):
            if self.stays():
                link.client_ready(events)
            return
        try:
            came = recv(self.client_fd, data, ROOM, MSG_DONTWAIT)
            if came < 0:
                if errno != EAGAIN and errno != EINTR and self.stays():
                    link.finish(CLIENT_CLOSED)
            elif came < SMALLEST_REQUEST or came == ROOM or not self.request(data, came):
                if came == ROOM:
                    self.client.widen()
                    link.again(self.client)
                if self.stays():
                    link.client_sent(bytes_of(data, came))
        except Exception:
            self.stays()
            link.fail()

    cdef bint request(self, const uint8_t *data, Py_ssize_t size) except -1:
        """Whether it was one request, and has gone its way; nothing was done where not."""
        cdef int key = int16_at(data + 4)
        cdef Py_ssize_t kept = 0
        if int32_at(data) != size - LENGTH or key == PRODUCE or len(self.expected) + 1 >= MOST:
            return False
        link, session, now = self.link, self.session, self.poller.now
        link.active, link.asking = now, True
        self.traffic.received_bytes += size
        note = None
        if key != FETCH or now >= session.fetch_due:
            note = self.desk.glance(key, int16_at(data + 6), size - LENGTH)
        if note is SHOW:
            kept = size - LENGTH + BESIDE
            if <Py_ssize_t>session.kept_bytes + kept >= MOST_KEPT_BYTES:
                if self.stays():
                    link.execute(session.glanced(bytes_of(data, size), note, now))
                return True
            session.kept_bytes += kept
            note = new_tuple(SHOWN, (bytes_of(data + LENGTH, size - LENGTH), session.origin, now))
        elif note is not None:
            if self.stays():
                link.execute(session.glanced(bytes_of(data, size), note, now))
            return True
        self.expected.append((int32_at(data + 8), key, now, note, False, kept))
        self.outbox.take(self, self.upstream_fd, data, size)
        return True

    def upstream_ready(self, int events):
        """The broker's socket is ready."""
        cdef uint8_t data[ROOM]
        cdef Py_ssize_t came
        link = self.link
        if events != EPOLLIN or self.upstream.room != ROOM or not (self.session.at_ease and link.flowing):
            if self.stays():
                link.upstream_ready(events)
            return
        try:
            came = recv(self.upstream_fd, data, ROOM, MSG_DONTWAIT)
            if came < 0 and (errno == EAGAIN or errno == EINTR):
                return
            if came < SMALLEST_REPLY or came == ROOM or not self.reply(data, came):
                if came == ROOM:
                    self.upstream.widen()
                    link.again(self.upstream)
                if self.stays():
                    link.upstream_sent(bytes_of(data, max(came, 0)))  # A reset says the same as an end.
        except Exception:
            self.stays()
            link.fail()

    cdef bint reply(self, const uint8_t *data, Py_ssize_t size) except -1:
        """Whether it was the reply that comes next, and has gone its way; where not, it is only known who spoke last."""
        cdef int key
        if int32_at(data) != size - LENGTH or not self.expected:
            return False
        link, now = self.link, self.poller.now
        link.active, link.asking = now, False
        correlation, key, since, note, _, kept = self.expected[0]
        if correlation != int32_at(data + 4) or key < 0:  # A SASL token has none of either.
            return False
        if note is not None:  # As that of an injected request never is.
            if type(note) is not SHOWN or self.desk.glance_reply(note, size - LENGTH, now) is not SHOW:
                return False
            self.desk.later(note, bytes_of(data + LENGTH, size - LENGTH), note.origin, now)
        self.expected.popleft()
        if kept:
            self.link.session.drop(kept)
        self.traffic.request_done(key, now - since)
        self.outbox.take(self, self.client_fd, data, size)
        return True

    cdef bint stays(self) except -1:
        """What waits leaves, before anything overtakes it. Whether the connection is still there."""
        if not self.outbox.count:
            return True
        self.outbox.leave()
        return self.stands()

    cdef bint stands(self) except -1:
        return self.number in self.link.shared.links

    cdef int left(self, int fd, const uint8_t *data, Py_ssize_t size, Py_ssize_t sent) except -1:
        """So much of a frame was sent, or it failed: below 0."""
        sent = max(sent, 0)
        if fd == self.client_fd:
            self.traffic.sent_bytes += sent
        if sent < size and self.stands():
            rest = bytes_of(data + sent, size - sent)
            self.link.execute([ToClient(rest) if fd == self.client_fd else ToUpstream(rest)])


cdef inline bytes bytes_of(const uint8_t *data, Py_ssize_t size):
    return PyBytes_FromStringAndSize(<const char *>data, size)


cdef inline int32_t int32_at(const uint8_t *data) noexcept:
    return <int32_t>(<uint32_t>data[0] << 24 | <uint32_t>data[1] << 16 | <uint32_t>data[2] << 8 | data[3])


cdef inline int16_t int16_at(const uint8_t *data) noexcept:
    return <int16_t>(<uint16_t>data[0] << 8 | data[1])
