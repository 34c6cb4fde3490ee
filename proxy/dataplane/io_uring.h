/* Sends many small frames in one system call: io_uring(7).

   Every send has MSG_DONTWAIT, so all sends are complete when the system call returns. The flags of io_uring_setup need
   Linux 6.1. Containers are often not allowed to use io_uring. */

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

/* One frame. sent: the bytes that the peer accepted, or a negative error. */
struct outgoing_frame {
    int fd;
    int32_t sent;
    uint32_t size;
    const uint8_t *data;
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

static void *ring_memory(int fd, size_t size, off_t region) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, region);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Opens a ring for this number of frames. Returns 0 or an errno. Only the thread that opens a ring may use it. */
static int ring_open(struct ring *ring, unsigned frames) {
    struct io_uring_params params = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN};
    memset(ring, 0, sizeof *ring);
    ring->fd = (int)syscall(__NR_io_uring_setup, frames, &params);
    if (ring->fd < 0) return errno;
    size_t sq_size = params.sq_off.array + params.sq_entries * sizeof(unsigned);
    size_t cq_size = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    ring->queues_size = sq_size > cq_size ? sq_size : cq_size; /* Both queues share one mapping since Linux 5.4. */
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

/* Stores the results of the completed sends in their frames. Returns the number of completed sends. */
static unsigned ring_reap(struct ring *ring) {
    unsigned head = *ring->cq_head, tail = __atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE), done = tail - head;
    for (; head != tail; head++) {
        struct io_uring_cqe *completion = &ring->cqes[head & *ring->cq_mask];
        ((struct outgoing_frame *)(uintptr_t)completion->user_data)->sent = completion->res;
    }
    __atomic_store_n(ring->cq_head, head, __ATOMIC_RELEASE);
    return done;
}

/* Sends frames, at most as many as the ring was opened for. Returns how many of them the kernel has processed, counted
   from the first. */
static unsigned ring_send(struct ring *ring, struct outgoing_frame *frames, unsigned count) {
    unsigned tail = *ring->sq_tail;
    for (unsigned i = 0; i < count; i++) {
        struct io_uring_sqe *submission = &ring->sqes[(tail + i) & *ring->sq_mask];
        memset(submission, 0, sizeof *submission);
        submission->opcode = IORING_OP_SEND;
        submission->fd = frames[i].fd;
        submission->addr = (uintptr_t)frames[i].data;
        submission->len = frames[i].size;
        submission->msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL;
        submission->user_data = (uintptr_t)&frames[i];
    }
    __atomic_store_n(ring->sq_tail, tail + count, __ATOMIC_RELEASE);
    long entered = syscall(__NR_io_uring_enter, ring->fd, count, count, IORING_ENTER_GETEVENTS, NULL, 0);
    unsigned taken = entered > 0 ? (unsigned)entered : 0, done = ring_reap(ring);
    __atomic_store_n(ring->sq_tail, tail + taken, __ATOMIC_RELEASE); /* The other entries are withdrawn. */
    while (done < taken) { /* A signal interrupted the wait. */
        syscall(__NR_io_uring_enter, ring->fd, 0, taken - done, IORING_ENTER_GETEVENTS, NULL, 0);
        done += ring_reap(ring);
    }
    return taken;
}

#else /* The kernel's headers are older than Linux 6.1, or not from Linux. */

struct ring { int fd; };
static int ring_open(struct ring *ring, unsigned frames) { (void)ring, (void)frames; return ENOSYS; }
static void ring_close(struct ring *ring) { (void)ring; }
static unsigned ring_send(struct ring *ring, struct outgoing_frame *frames, unsigned count) {
    (void)ring, (void)frames, (void)count;
    return 0;
}

#endif
#endif
