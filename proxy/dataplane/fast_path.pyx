# cython: language_level=3
"""Reads and sends small frames in compiled code. The session decides what happens to each frame.

The poller calls `FastPath` in place of `Connection` when a socket is ready. `FastPath` reads the socket itself if the
next read is small and the session can use the fast path. A chunk that the session passes on unchanged goes to the
`Outbox`, which sends the small frames of a round in one system call. `FastPath` leaves everything else to `connection`
and `session`.

This module contains no forwarding rule and no constant of its own. Only `Session.inspect_request` and
`Session.inspect_reply` decide whether a whole frame may pass. `FrameWalker` finds the frames of a stream that arrives
in pieces, and asks the same session. docs/data-path.md describes both paths.

If this module could not be compiled, `Connection` carries all frames. Small frames then cost more CPU.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, uint8_t, uint32_t

from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.dataplane.endpoint_socket import SMALL_READ_BYTES
from group_sidecar.proxy.dataplane.framing import PASS as _PASS
from group_sidecar.proxy.dataplane.poller import MAX_EVENTS_PER_ROUND

cdef extern from "<sys/socket.h>" nogil:
    const int MSG_DONTWAIT, MSG_NOSIGNAL
    ssize_t recv(int fd, void *data, size_t size, int flags)
    ssize_t send(int fd, const void *data, size_t size, int flags)

cdef extern from "<sys/epoll.h>" nogil:
    const int EPOLLIN

cdef extern from "io_uring.h" nogil:
    struct outgoing_frame:
        int fd
        int32_t sent
        uint32_t size
        const uint8_t *data
    struct ring:
        pass
    int ring_open(ring *, unsigned frames)
    void ring_close(ring *)
    unsigned ring_send(ring *, outgoing_frame *frames, unsigned count)

cdef Py_ssize_t READ_SIZE = SMALL_READ_BYTES
cdef unsigned MAX_FRAMES = MAX_EVENTS_PER_ROUND
cdef object PASS = _PASS, CLIENT_CLOSED = CloseReason.CLIENT_CLOSED
# All connections share the read buffer. The interpreter's lock is held from each recv() until its bytes are copied.
cdef bytearray read_buffer = bytearray(READ_SIZE)
cdef char *buffer = read_buffer


cdef class FastPath


cdef class Outbox:
    """Collects the frames of a round and sends them in one system call when the round is over.

    A local peer that receives a frame may preempt this thread, and the frames of other connections would wait. So no
    frame is sent before all frames of the round are ready. A round has at most one frame for each socket. If the kernel
    does not allow io_uring, each frame is sent when it is read.
    """

    cdef ring ring
    cdef outgoing_frame *frames
    cdef unsigned count
    cdef list paths, chunks
    cdef readonly bint batched

    def __cinit__(self, bint batched):
        self.paths, self.chunks = [], []
        self.frames = <outgoing_frame *>PyMem_Malloc(MAX_FRAMES * sizeof(outgoing_frame))
        if not self.frames:
            raise MemoryError
        self.batched = batched and not ring_open(&self.ring, MAX_FRAMES)

    def __dealloc__(self):
        if self.batched:
            ring_close(&self.ring)
        PyMem_Free(self.frames)

    cdef int take(self, FastPath path, int fd, bytes chunk) except -1:
        """Sends a chunk, or keeps it until `flush`."""
        cdef outgoing_frame *frame
        cdef Py_ssize_t size = PyBytes_GET_SIZE(chunk)
        if not self.batched:
            return path.finish_send(fd, chunk, send(fd, PyBytes_AS_STRING(chunk), size, MSG_DONTWAIT | MSG_NOSIGNAL))
        if self.count == MAX_FRAMES:
            self.flush()
        frame = &self.frames[self.count]
        frame.fd, frame.size, frame.data = fd, <uint32_t>size, <const uint8_t *>PyBytes_AS_STRING(chunk)
        self.paths.append(path)
        self.chunks.append(chunk)
        self.count += 1

    cpdef flush(self):
        """Sends all frames that were collected. Does not raise."""
        cdef unsigned i, done
        cdef outgoing_frame *frame
        cdef FastPath path
        if not self.count:
            return
        done = ring_send(&self.ring, self.frames, self.count) if self.count > 1 else 0
        for i in range(done, self.count):
            frame = &self.frames[i]
            frame.sent = <int32_t>send(frame.fd, frame.data, frame.size, MSG_DONTWAIT | MSG_NOSIGNAL)
        for i in range(self.count):
            path = self.paths[i]
            try:
                path.finish_send(self.frames[i].fd, self.chunks[i], self.frames[i].sent)
            except Exception:
                path.connection.fail()
        self.paths.clear()
        self.chunks.clear()
        self.count = 0


cdef class FastPath:
    """Serves both sockets of one connection. The poller calls `client_ready` and `upstream_ready`."""

    cdef object connection, connections, counters, number
    cdef Outbox outbox
    cdef int client_fd, upstream_fd
    cdef bint client_is_plain, upstream_is_plain

    def __cinit__(self, connection, Outbox outbox):
        self.connection, self.outbox = connection, outbox
        self.connections, self.counters = connection.shared.connections, connection.counters
        self.number = connection.session.origin.number
        self.client_fd, self.upstream_fd = connection.client.fd, connection.upstream.fd
        self.client_is_plain, self.upstream_is_plain = connection.client.is_plain, connection.upstream.is_plain

    def client_ready(self, int events):
        """Serves the client's socket, which is ready or broken."""
        cdef Py_ssize_t received
        connection = self.connection
        if events != EPOLLIN or not connection.reads_client_on_fast_path:
            if self.flush_outbox():
                connection.client_ready(events)
            return
        try:
            if not self.client_is_plain:
                self.read_tls_client()
                return
            received = recv(self.client_fd, buffer, READ_SIZE, MSG_DONTWAIT)
            if received < 0:
                if errno != EAGAIN and errno != EINTR and self.flush_outbox():
                    connection.finish(CLIENT_CLOSED)
            elif received == 0 or received == READ_SIZE:
                chunk = PyBytes_FromStringAndSize(buffer, received)
                if received:
                    connection.client.grow_read_size()
                    connection.rearm(connection.client)
                if self.flush_outbox():
                    connection.receive_from_client(chunk)
            else:
                self.receive_from_client(PyBytes_FromStringAndSize(buffer, received))
        except Exception:
            self.flush_outbox()
            connection.fail()

    cdef int read_tls_client(self) except -1:
        try:
            chunk = self.connection.read(self.connection.client, EPOLLIN)
        except BlockingIOError:
            return 0
        except OSError as error:
            if self.flush_outbox():
                self.connection.client_failed(error)
            return 0
        if chunk and self.connection.session.can_use_fast_path:  # A read may end the fast path.
            self.receive_from_client(chunk)
        elif self.flush_outbox():
            self.connection.receive_from_client(chunk)

    cdef int receive_from_client(self, bytes chunk) except -1:
        """Passes a chunk on through the outbox if the session permits, otherwise as `Connection` does."""
        action = self.connection.inspect_request(chunk)
        if action is PASS:
            if not self.upstream_is_plain:
                chunk = self.connection.upstream.encrypt(chunk)
            self.outbox.take(self, self.upstream_fd, chunk)
        elif self.flush_outbox():
            self.connection.execute_inspected_request(chunk, action)

    def upstream_ready(self, int events):
        """Serves the broker's socket, which is ready or broken."""
        cdef Py_ssize_t received
        connection = self.connection
        if events != EPOLLIN or not connection.reads_upstream_on_fast_path:
            if self.flush_outbox():
                connection.upstream_ready(events)
            return
        try:
            if not self.upstream_is_plain:
                self.read_tls_upstream()
                return
            received = recv(self.upstream_fd, buffer, READ_SIZE, MSG_DONTWAIT)
            if received < 0 and (errno == EAGAIN or errno == EINTR):
                return
            if received <= 0 or received == READ_SIZE:
                chunk = PyBytes_FromStringAndSize(buffer, max(received, 0))  # A reset is handled like a close.
                if received > 0:
                    connection.upstream.grow_read_size()
                    connection.rearm(connection.upstream)
                if self.flush_outbox():
                    connection.receive_from_upstream(chunk)
            else:
                self.receive_from_upstream(PyBytes_FromStringAndSize(buffer, received))
        except Exception:
            self.flush_outbox()
            connection.fail()

    cdef int read_tls_upstream(self) except -1:
        try:
            chunk = self.connection.read(self.connection.upstream, EPOLLIN)
        except BlockingIOError:
            return 0
        except OSError:
            chunk = b""  # A reset is handled like a close.
        if chunk and self.connection.session.can_use_fast_path:  # As in `read_tls_client`.
            self.receive_from_upstream(chunk)
        elif self.flush_outbox():
            self.connection.receive_from_upstream(chunk)

    cdef int receive_from_upstream(self, bytes chunk) except -1:
        """Handles a chunk of the broker as `receive_from_client` handles a chunk of the client."""
        action = self.connection.inspect_reply(chunk)
        if action is PASS:
            self.counters.sent_bytes += PyBytes_GET_SIZE(chunk)
            if not self.client_is_plain:
                chunk = self.connection.client.encrypt(chunk)
            self.outbox.take(self, self.client_fd, chunk)
        elif self.flush_outbox():
            self.connection.execute_inspected_reply(chunk, action)

    cdef bint flush_outbox(self) except -1:
        """Sends the collected frames, so that nothing overtakes them. Returns whether the connection is still open."""
        if not self.outbox.count:
            return True
        self.outbox.flush()
        return self.is_open()

    cdef bint is_open(self) except -1:
        return self.number in self.connections

    cdef int finish_send(self, int fd, bytes chunk, Py_ssize_t sent) except -1:
        """Hands the bytes that the peer did not accept to the connection. `sent` below 0 is an error."""
        if sent < PyBytes_GET_SIZE(chunk) and self.is_open():
            connection = self.connection
            connection.send_rest(connection.client if fd == self.client_fd else connection.upstream, chunk[max(sent, 0):])
