/* SPDX-License-Identifier: Apache-2.0 */
/* shm_ring.h: the layout of the memory that the daemon and one client share.
 *
 * Each session has two memfds, which the daemon makes, sizes and seals:
 *
 * - control: written by the daemon, mapped read-only by the client (F_SEAL_FUTURE_WRITE). It is
 *   struct shm_control, then `slot_count` struct op_completion.
 * - arena: written by both. It is struct shm_arena_head, then `slot_count` struct op_submission.
 *   From shm_arena_payload_offset() on, the bytes belong to the client: segments, ids and rows, in
 *   any places it likes (ops.h). Their offsets count from the start of the arena.
 *
 * Request n uses submission and completion n % slot_count. The client fills the submission, then
 * publishes it by storing n + 1 in `tail` (release). If `lane_asleep` is set, it rings the doorbell
 * (an eventfd). When the request is done, the daemon fills the completion and stores n + 1 in its
 * `sequence` (release). Then, if `client_waiting` is set, it wakes the futex on `sequence`. From
 * then on the client may reuse slot n % slot_count.
 *
 * Apart from the offsets of bags (ops.h), `tail` and `client_waiting` are the only words of the
 * arena that the daemon reads while the client can change them. It checks each after every read,
 * and waits on none. */
#ifndef EMBTIER_PROTO_SHM_RING_H
#define EMBTIER_PROTO_SHM_RING_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ops.h"

#define SHM_MAGIC          0x52454954424d45ULL /* "EMBTIER" */
#define SHM_LAYOUT_VERSION 1
#define SHM_ALIGN          OP_ALIGN

struct shm_control {
    uint64_t magic;
    uint32_t layout_version;
    uint32_t slot_count;
    uint64_t arena_bytes;
    uint32_t max_batch_rows;
    uint32_t reserved;
    uint64_t unused[4];
    _Atomic uint32_t lane_asleep; /* no lane polls `tail`: ring the doorbell */
    _Atomic uint32_t closed; /* an enum embtier_err once the daemon has ended the session, else 0 */
    uint32_t pad[14];
};
static_assert(sizeof(struct shm_control) == 128, "two cache lines");
static_assert(offsetof(struct shm_control, lane_asleep) == 64, "a line of its own");

struct shm_arena_head {
    _Atomic uint32_t tail; /* requests submitted so far */
    uint32_t pad0[15];
    _Atomic uint32_t client_waiting; /* a thread sleeps on a completion's futex */
    uint32_t pad1[15];
};
static_assert(sizeof(struct shm_arena_head) == 128, "two cache lines");

static inline uint64_t shm_control_bytes(uint32_t slot_count)
{
    return sizeof(struct shm_control) + (uint64_t)slot_count * sizeof(struct op_completion);
}

static inline uint64_t shm_arena_payload_offset(uint32_t slot_count)
{
    return sizeof(struct shm_arena_head) + (uint64_t)slot_count * sizeof(struct op_submission);
}

static inline struct op_completion *shm_completions(struct shm_control *control)
{
    return (struct op_completion *)(control + 1);
}

static inline struct op_submission *shm_submissions(struct shm_arena_head *head)
{
    return (struct op_submission *)(head + 1);
}

/* Ordering of the words above. Each function is for one side only. */

/* Client: makes everything written for request n visible before tail = n + 1. The caller reads
 * lane_asleep next. */
static inline void shm_publish_tail(struct shm_arena_head *head, uint32_t tail)
{
    atomic_store_explicit(&head->tail, tail, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with the fence in shm_lane_sleeps() */
}

/* Daemon: sees everything written before the tail that it reads. */
static inline uint32_t shm_read_tail(const struct shm_arena_head *head)
{
    return atomic_load_explicit(&head->tail, memory_order_acquire);
}

/* Daemon: announces that it stops polling. The caller reads the tail once more afterwards, so that
 * one of the two sides sees the other. */
static inline void shm_lane_sleeps(struct shm_control *control, uint32_t asleep)
{
    atomic_store_explicit(&control->lane_asleep, asleep, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

static inline uint32_t shm_lane_is_asleep(const struct shm_control *control)
{
    return atomic_load_explicit(&control->lane_asleep, memory_order_relaxed);
}

/* Daemon: makes the completion and the rows visible before the sequence. The caller reads
 * client_waiting next. */
static inline void shm_publish_completion(struct op_completion *completion, uint32_t sequence)
{
    atomic_store_explicit(&completion->sequence, sequence, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with the fence in shm_client_waits() */
}

static inline uint32_t shm_read_sequence(const struct op_completion *completion)
{
    return atomic_load_explicit(&completion->sequence, memory_order_acquire);
}

/* Client: announces that it is about to sleep. The caller reads the sequence once more
 * afterwards. */
static inline void shm_client_waits(struct shm_arena_head *head, uint32_t waiting)
{
    atomic_store_explicit(&head->client_waiting, waiting, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

static inline uint32_t shm_client_is_waiting(const struct shm_arena_head *head)
{
    return atomic_load_explicit(&head->client_waiting, memory_order_relaxed);
}

#endif
