/* Many small frames leave in one system call, where the kernel allows it: io_uring(7).

   Owns: the memory shared with the kernel, and what is owed of it. Must not know: whose frames they are.

   Only sends that do not wait go through it, so all are done when the call returns. Asked for is Linux 6.1, by its
   flags; containers are often not allowed it. */

#ifndef RING_H
#define RING_H

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __has_include
#if __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#endif
#endif

/* One frame. sent: the bytes that the peer took, or an error below 0. */
struct departure {
    int fd;
    int32_t sent;
    uint32_t size;
    uint8_t data[478];
};

#ifdef IORING_SETUP_DEFER_TASKRUN

struct ring {
    int fd;
    unsigned *sq_tail, *sq_mask, *cq_head, *cq_tail, *cq_mask;
    struct io_uring_sqe *sqes;
    struct io_uring_cqe *cqes;
    void *queues;
    size_t queues_size, sqes_size;
};

static void ring_close(struct ring *ring) {
    if (ring->queues) munmap(ring->queues, ring->queues_size);
    if (ring->sqes) munmap(ring->sqes, ring->sqes_size);
    close(ring->fd);
}

static void *ring_memory(int fd, size_t size, off_t what) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, what);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Gives 0, or the error why there is none. It is the thread's that opens it. */
static int ring_open(struct ring *ring, unsigned frames) {
    struct io_uring_params params = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN};
    memset(ring, 0, sizeof *ring);
    ring->fd = (int)syscall(__NR_io_uring_setup, frames, &params);
    if (ring->fd < 0) return errno;
    size_t sq_size = params.sq_off.array + params.sq_entries * sizeof(unsigned);
    size_t cq_size = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    ring->queues_size = sq_size > cq_size ? sq_size : cq_size; /* Both are one piece since Linux 5.4. */
    ring->sqes_size = params.sq_entries * sizeof(struct io_uring_sqe);
    ring->queues = ring_memory(ring->fd, ring->queues_size, IORING_OFF_SQ_RING);
    ring->sqes = ring_memory(ring->fd, ring->sqes_size, IORING_OFF_SQES);
    if (!ring->queues || !ring->sqes) {
        int error = errno;
        ring_close(ring);
        return error;
    }
    char *queues = ring->queues;
    ring->sq_tail = (unsigned *)(queues + params.sq_off.tail);
    ring->sq_mask = (unsigned *)(queues + params.sq_off.ring_mask);
    ring->cq_head = (unsigned *)(queues + params.cq_off.head);
    ring->cq_tail = (unsigned *)(queues + params.cq_off.tail);
    ring->cq_mask = (unsigned *)(queues + params.cq_off.ring_mask);
    ring->cqes = (struct io_uring_cqe *)(queues + params.cq_off.cqes);
    unsigned *order = (unsigned *)(queues + params.sq_off.array);
    for (unsigned i = 0; i < params.sq_entries; i++) order[i] = i;
    return 0;
}

/* Takes what the kernel says it has done. Gives of how many frames. */
static unsigned ring_reap(struct ring *ring) {
    unsigned head = *ring->cq_head, tail = __atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE), done = tail - head;
    for (; head != tail; head++) {
        struct io_uring_cqe *said = &ring->cqes[head & *ring->cq_mask];
        ((struct departure *)(uintptr_t)said->user_data)->sent = said->res;
    }
    __atomic_store_n(ring->cq_head, head, __ATOMIC_RELEASE);
    return done;
}

/* Sends frames, no more than it was opened for. Gives how many of them, from the first, the kernel has dealt with. */
static unsigned ring_send(struct ring *ring, struct departure *frames, unsigned count) {
    unsigned tail = *ring->sq_tail;
    for (unsigned i = 0; i < count; i++) {
        struct io_uring_sqe *asked = &ring->sqes[(tail + i) & *ring->sq_mask];
        memset(asked, 0, sizeof *asked);
        asked->opcode = IORING_OP_SEND;
        asked->fd = frames[i].fd;
        asked->addr = (uintptr_t)frames[i].data;
        asked->len = frames[i].size;
        asked->msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL;
        asked->user_data = (uintptr_t)&frames[i];
    }
    __atomic_store_n(ring->sq_tail, tail + count, __ATOMIC_RELEASE);
    long entered = syscall(__NR_io_uring_enter, ring->fd, count, count, IORING_ENTER_GETEVENTS, NULL, 0);
    unsigned taken = entered > 0 ? (unsigned)entered : 0, done = ring_reap(ring);
    __atomic_store_n(ring->sq_tail, tail + taken, __ATOMIC_RELEASE); /* It has no more of them than it says. */
    while (done < taken) { /* A signal came between. */
        syscall(__NR_io_uring_enter, ring->fd, 0, taken - done, IORING_ENTER_GETEVENTS, NULL, 0);
        done += ring_reap(ring);
    }
    return taken;
}

#else /* Compiled where the kernel's headers are older, or not Linux'. */

struct ring { int fd; };
static int ring_open(struct ring *ring, unsigned frames) { (void)ring, (void)frames; return ENOSYS; }
static void ring_close(struct ring *ring) { (void)ring; }
static unsigned ring_send(struct ring *ring, struct departure *frames, unsigned count) {
    (void)ring, (void)frames, (void)count;
    return 0;
}

#endif
#endif
