# cython: language_level=3
"""The acceptor, compiled: a thread that accepts and sets out for the broker while the loop serves others.

Owns: its thread, and the pipe through which arrivals come to the loop. The pipe is short: where the loop does not keep
up, clients wait in the kernel. Must not know: more than `acceptor`, which does the same without a thread.

The thread runs without Python's lock, so neither waits for the other.
"""

import fcntl
import os
import signal
import socket
import struct
import threading

from libc.errno cimport EBADF, EINPROGRESS, EINVAL, errno
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy

from group_sidecar.proxy.acceptor import EXHAUSTED, Arrival, packed

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

cdef extern from "<unistd.h>" nogil:
    int close(int fd)
    ssize_t read(int fd, void *data, size_t size)
    ssize_t write(int fd, const void *data, size_t size)

cdef object ARRIVAL = Arrival, new_tuple = tuple.__new__

cdef enum:
    AT_ONCE = 32  # As Acceptor's: an array's size must be known here.
    PIPE_BYTES = 4096

cdef union Place:
    sockaddr head
    sockaddr_in v4
    sockaddr_in6 v6

cdef struct Aim:
    int number  # Which of the targets it is.
    socklen_t size  # 0: there is none.
    Place place

cdef struct Record:
    int client  # -1: none could be accepted.
    int failed
    int upstream
    bint connected
    int aimed  # At which target.
    int host_size
    uint8_t host[16]


cdef class AcceptorThread:
    """As `Acceptor`, and beside the loop."""

    cdef object listener, target, thread
    cdef int listening, come, going
    cdef Aim aim
    cdef pthread_mutex_t lock

    def __init__(self, listener):
        self.listener, self.target = listener, None
        listener.setblocking(True)
        self.listening = listener.fileno()
        pthread_mutex_init(&self.lock, NULL)
        self.aim.number, self.aim.size = 0, 0
        self.come, self.going = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.come, False)
        fcntl.fcntl(self.going, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self.thread = threading.Thread(target=self.run, name="acceptor", daemon=True)
        self.thread.start()

    def fileno(self):
        """The descriptor to be watched."""
        return self.come

    def take(self, target):
        """As `Acceptor.take`. Those who came before it had this target are not on their way."""
        cdef Record records[AT_ONCE]
        cdef int i, failed = 0
        cdef ssize_t count = read(self.come, records, sizeof(records)) // <ssize_t>sizeof(Record)
        if target is not self.target:
            self.aim_at(target)
        for i in range(count):
            if records[i].client < 0:
                if records[i].failed in EXHAUSTED:
                    failed = records[i].failed
                continue
            if records[i].aimed != self.aim.number and records[i].upstream >= 0:
                close(records[i].upstream)
                records[i].upstream, records[i].connected = -1, False
            host = <bytes>records[i].host[:records[i].host_size]
            yield new_tuple(ARRIVAL, (records[i].client, host, records[i].upstream, records[i].connected))
        if failed:
            raise OSError(failed, os.strerror(failed))

    cdef aim_at(self, target):
        """Has the thread set out for another target."""
        address = _encoded(*target) if target else b""
        pthread_mutex_lock(&self.lock)
        self.aim.number += 1
        self.aim.size = len(address)
        memcpy(&self.aim.place, <const char *>address, len(address))
        pthread_mutex_unlock(&self.lock)
        self.target = target

    def close(self):
        """Ends it, and shuts the listener; who has come and was not taken goes."""
        cdef Record record
        cdef ssize_t came = 1
        self.listener.shutdown(socket.SHUT_RDWR)  # The thread is told by that, and tells when it ends.
        os.set_blocking(self.come, True)
        while came:
            came = read(self.come, &record, sizeof(record))
            if came > 0 and record.client >= 0:
                close(record.client)
                if record.upstream >= 0:
                    close(record.upstream)
        self.thread.join()
        close(self.come)

    def run(self):
        """The thread."""
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # They are for others.
        with nogil:
            self.accept()
            close(self.going)

    cdef void accept(self) noexcept nogil:
        """Accepts until the listener is shut."""
        cdef Record record
        cdef Place peer
        cdef socklen_t size
        while True:
            size = sizeof(peer)
            record.client = accept4(self.listening, &peer.head, &size, SOCK_NONBLOCK | SOCK_CLOEXEC)
            if record.client >= 0:
                if peer.head.sa_family == AF_INET6:
                    record.host_size = 16
                    memcpy(record.host, &peer.v6.sin6_addr, 16)
                else:
                    record.host_size = 4
                    memcpy(record.host, &peer.v4.sin_addr, 4)
                self.set_out(&record)
            elif errno == EINVAL or errno == EBADF:
                return  # It was shut.
            else:
                record.failed = errno
            write(self.going, &record, sizeof(record))

    cdef void set_out(self, Record *record) noexcept nogil:
        """Begins a connection to where it aims."""
        cdef Aim aim
        cdef Place peer
        cdef socklen_t size = sizeof(peer)
        cdef int on = 1
        pthread_mutex_lock(&self.lock)
        aim = self.aim
        pthread_mutex_unlock(&self.lock)
        record.aimed, record.upstream, record.connected = aim.number, -1, False
        if not aim.size:
            return
        record.upstream = socket_(aim.place.head.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)
        if record.upstream < 0:
            return
        setsockopt(record.upstream, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on))
        setsockopt(record.upstream, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on))
        if connect(record.upstream, &aim.place.head, aim.size) and errno != EINPROGRESS:
            close(record.upstream)
            record.upstream = -1
            return
        record.connected = getpeername(record.upstream, &peer.head, &size) == 0


def _encoded(family, address):
    """A socket's address as the system has it."""
    host = packed(family, address[0])
    if family == socket.AF_INET:
        return struct.pack("=H", family) + struct.pack(">H4s8x", address[1], host)
    port, flow, scope = address[1:]
    return struct.pack("=H", family) + struct.pack(">HI16s", port, flow, host) + struct.pack("=I", scope)
