# cython: language_level=3
"""Accepts clients and begins connections to the broker in a thread, while the event loop serves other clients.

The thread sends a record of each accepted client to the event loop through a pipe. The pipe is small: if the event loop
falls behind, clients wait in the kernel. The thread runs without Python's GIL, so thread and event loop do not wait for
each other. `acceptor` does the same without a thread.
"""

import fcntl
import os
import signal
import socket
import struct
import threading

from cpython.bytes cimport PyBytes_AS_STRING
from libc.errno cimport EAGAIN, EBADF, EINPROGRESS, EINVAL, errno
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy

from group_sidecar.proxy.listeners.acceptor import ACCEPT_BATCH, EXHAUSTION_ERRNOS, AcceptedClient, packed

cdef extern from "<sys/socket.h>" nogil:
    ctypedef uint32_t socklen_t
    cdef struct sockaddr:
        unsigned short sa_family
    const int AF_INET6, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM, SOL_SOCKET, SO_KEEPALIVE
    int accept4(int fd, sockaddr *address, socklen_t *size, int flags)
    int socket_ "socket"(int family, int kind, int protocol)
    int connect(int fd, const sockaddr *address, socklen_t size)
    int getpeername(int fd, sockaddr *address, socklen_t *size)
    int setsockopt(int fd, int level, int name, const void *value, socklen_t size)

cdef extern from "<netinet/in.h>" nogil:
    const int IPPROTO_TCP
    cdef struct in_addr:
        pass
    cdef struct in6_addr:
        pass
    cdef struct sockaddr_in:
        in_addr sin_addr
    cdef struct sockaddr_in6:
        in6_addr sin6_addr

cdef extern from "<netinet/tcp.h>" nogil:
    const int TCP_NODELAY

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *, void *)
    int pthread_mutex_lock(pthread_mutex_t *)
    int pthread_mutex_unlock(pthread_mutex_t *)

cdef extern from "<poll.h>" nogil:
    const short POLLIN
    cdef struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *fds, unsigned long count, int timeout)

cdef extern from "<unistd.h>" nogil:
    int close(int fd)
    ssize_t read(int fd, void *data, size_t size)
    ssize_t write(int fd, const void *data, size_t size)

cdef object ACCEPTED_CLIENT = AcceptedClient, new_tuple = tuple.__new__

cdef int PIPE_BYTES = 4096

cdef union SocketAddress:
    sockaddr head
    sockaddr_in v4
    sockaddr_in6 v6

cdef struct ConnectTarget:
    int number  # Changes with each new target.
    socklen_t size  # 0 if there is no target.
    SocketAddress socket_address

cdef struct Record:
    int client  # -1 if no client could be accepted.
    int failed
    int upstream
    bint connected
    int target_number  # The number of the target to which the broker connection was begun.
    int host_size
    uint8_t host[16]


cdef class AcceptorThread:
    """Does the same as `Acceptor` in a thread."""

    cdef object listener, target, thread
    cdef int listening, read_fd, write_fd, stop_fd
    cdef bint stopping
    cdef ConnectTarget connect_target
    cdef pthread_mutex_t lock

    def __init__(self, listener):
        self.listener, self.target = listener, None
        self.listening, self.stopping = listener.fileno(), False
        self.stop_fd = os.eventfd(0, os.EFD_CLOEXEC)
        pthread_mutex_init(&self.lock, NULL)
        self.connect_target.number, self.connect_target.size = 0, 0
        self.read_fd, self.write_fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.read_fd, False)
        fcntl.fcntl(self.write_fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self.thread = threading.Thread(target=self.run, name="acceptor", daemon=True)
        self.thread.start()

    def fileno(self):
        """Returns the descriptor that is readable when clients were accepted."""
        return self.read_fd

    def take_accepted(self, target, int max_clients=ACCEPT_BATCH):
        """Does the same as `Acceptor.take_accepted`. Closes broker connections that were begun to another target."""
        try:
            data = os.read(self.read_fd, max_clients * sizeof(Record))
        except BlockingIOError:
            data = b""
        if target is not self.target:
            self.set_connect_target(target)
        return self.clients_in(data)

    def take_remaining(self, target):
        """Stops accepting, and returns the clients that were accepted before. Otherwise like `take_accepted`."""
        self.stop()
        if target is not self.target:
            self.set_connect_target(target)
        while data := os.read(self.read_fd, ACCEPT_BATCH * sizeof(Record)):
            yield from self.clients_in(data)

    def clients_in(self, data):
        """Yields the clients of these records. Then raises an OSError of `EXHAUSTION_ERRNOS` if a record has one."""
        cdef const Record *record
        cdef int i, upstream, failed = 0
        cdef bint connected
        for i in range(len(data) // sizeof(Record)):
            record = <const Record *>PyBytes_AS_STRING(data) + i
            if record.client < 0:
                if record.failed in EXHAUSTION_ERRNOS:
                    failed = record.failed
                continue
            upstream, connected = record.upstream, record.connected
            if record.target_number != self.connect_target.number and upstream >= 0:
                close(upstream)
                upstream, connected = -1, False
            host = <bytes>record.host[:record.host_size]
            yield new_tuple(ACCEPTED_CLIENT, (record.client, host, upstream, connected))
        if failed:
            raise OSError(failed, os.strerror(failed))

    cdef set_connect_target(self, target):
        """Makes the thread begin connections to another target."""
        address = _encoded(*target) if target else b""
        pthread_mutex_lock(&self.lock)
        self.connect_target.number += 1
        self.connect_target.size = len(address)
        memcpy(&self.connect_target.socket_address, <const char *>address, len(address))
        pthread_mutex_unlock(&self.lock)
        self.target = target

    def close(self):
        """Ends the thread, and closes the clients that were not taken.

        The listener is not shut down, because a service manager may have passed it and keep it open.
        """
        cdef Record record
        cdef ssize_t received = 1
        self.stop()
        while received:
            received = read(self.read_fd, &record, sizeof(record))
            if received > 0 and record.client >= 0:
                close(record.client)
                if record.upstream >= 0:
                    close(record.upstream)
        self.thread.join()
        close(self.read_fd)
        close(self.stop_fd)

    cdef stop(self):
        """Makes the thread end and close its side of the pipe. A read of the pipe then waits for the thread."""
        self.stopping = True
        os.eventfd_write(self.stop_fd, 1)
        os.set_blocking(self.read_fd, True)

    def run(self):
        """Accepts clients until `stop`. The thread calls this method."""
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # The main thread handles signals.
        with nogil:
            self.accept()
            close(self.write_fd)

    cdef void accept(self) noexcept nogil:
        """Accepts clients until `stop`, or until the listener is unusable."""
        cdef Record record
        cdef pollfd waited[2]
        cdef SocketAddress peer
        cdef socklen_t size
        waited[0].fd, waited[0].events = self.listening, POLLIN
        waited[1].fd, waited[1].events = self.stop_fd, POLLIN
        while not self.stopping:
            size = sizeof(peer)
            record.client = accept4(self.listening, &peer.head, &size, SOCK_NONBLOCK | SOCK_CLOEXEC)
            if record.client >= 0:
                if peer.head.sa_family == AF_INET6:
                    record.host_size = 16
                    memcpy(record.host, &peer.v6.sin6_addr, 16)
                else:
                    record.host_size = 4
                    memcpy(record.host, &peer.v4.sin_addr, 4)
                self.start_connect(&record)
            elif errno == EAGAIN:
                poll(waited, 2, -1)
                continue
            elif errno == EINVAL or errno == EBADF:
                return  # Another process has shut down the listener, or the listener is closed.
            else:
                record.failed = errno
            write(self.write_fd, &record, sizeof(record))

    cdef void start_connect(self, Record *record) noexcept nogil:
        """Begins a connection to the current target."""
        cdef ConnectTarget connect_target
        cdef SocketAddress peer
        cdef socklen_t size = sizeof(peer)
        cdef int on = 1
        pthread_mutex_lock(&self.lock)
        connect_target = self.connect_target
        pthread_mutex_unlock(&self.lock)
        record.target_number, record.upstream, record.connected = connect_target.number, -1, False
        if not connect_target.size:
            return
        record.upstream = socket_(connect_target.socket_address.head.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)
        if record.upstream < 0:
            return
        setsockopt(record.upstream, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on))
        setsockopt(record.upstream, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on))
        if connect(record.upstream, &connect_target.socket_address.head, connect_target.size) and errno != EINPROGRESS:
            close(record.upstream)
            record.upstream = -1
            return
        record.connected = getpeername(record.upstream, &peer.head, &size) == 0


def _encoded(family, address):
    """Returns a socket address as the C library represents it."""
    host = packed(family, address[0])
    if family == socket.AF_INET:
        return struct.pack("=H", family) + struct.pack(">H4s8x", address[1], host)
    port, flow, scope = address[1:]
    return struct.pack("=H", family) + struct.pack(">HI16s", port, flow, host) + struct.pack("=I", scope)
