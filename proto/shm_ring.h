/* SPDX-License-Identifier: Apache-2.0 */
/* shm_ring.h: the layout of the memory that the daemon and one client share.
 *
 * Each session has two memfds, which the daemon makes, sizes and seals:
 *
 * - control: written by the daemon, mapped read-only by the client (F_SEAL_FUTURE_WRITE). It is
 *   struct shm_control, then `slot_count` struct shm_completion.
 * - arena: written by both. It is struct shm_arena_head, then `slot_count` struct shm_submission.
 *   From shm_arena_payload_offset() on, the bytes belong to the client: segments, ids and rows, in
 *   any places it likes.
 *
 * Request n (0, 1, 2 … wrapping at 2^32) uses submission and completion n % slot_count. The client
 * fills the submission, then publishes it by storing n + 1 in `tail` (release). If `lane_asleep` is
 * set, it rings the doorbell (an eventfd). The daemon copies the submission and its segments once,
 * checks the copies, and never reads the originals again. It copies ids once as it checks them.
 * When the request is done, the daemon fills the completion and stores n + 1 in its `sequence`
 * (release). Then, if `client_waiting` is set, it wakes the futex on `sequence`. From then on the
 * client may reuse slot n % slot_count. Requests start in order; those that touch the same row take
 * effect in order; completions come in any order.
 *
 * Anything that the client writes into the arena may be hostile. `tail`, `client_waiting` and the
 * offsets of bags are the only words that the daemon reads while the client can change them. It
 * checks each after every read, and waits on none. It computes with numbers of rows, weights and
 * bags as they are. It checks once that gradients are finite, against mistakes, not malice. */
#ifndef EMBTIER_PROTO_SHM_RING_H
#define EMBTIER_PROTO_SHM_RING_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define SHM_MAGIC             0x52454954424d45ULL /* "EMBTIER" */
#define SHM_LAYOUT_VERSION    1
#define SHM_SLOTS_MAX         1024
#define SHM_SLOTS_DEFAULT     64
#define SHM_SEGMENTS_MAX      65536 /* tables in one request; a repeated table counts again */
#define SHM_POOL_SEGMENTS_MAX 32768 /* the same in a pooled lookup or a push */
#define SHM_ALIGN             64 /* offsets of segments, ids and rows are multiples of this … */
#define SHM_ID_ALIGN          8  /* … or, for ids and segments, at least of this … */
#define SHM_ROW_ALIGN         2  /* … for rows, of this … */
#define SHM_NUMBER_ALIGN      4  /* … and for bags, weights and offsets of bags, of this */

/* OP(name, number): all operations. */
#define SHM_OPS(OP)                                                                                \
    OP(GET, 1)      /* weights of rows, from the server to the segment's rows */                   \
    OP(SET, 2)      /* weights of rows, from the segment's rows to the server */                   \
    OP(POOL, 3)     /* rows of bags, pooled, from the server to the segment's bags */              \
    OP(PUSH, 4)     /* gradients, from the segment's gradients to the server's optimizers */       \
    OP(RELEASE, 5)  /* gives up a ticket that is no longer needed; no segments */                  \
    OP(PREFETCH, 6) /* brings the rows of ids into DRAM and pins them; gives a ticket */

enum shm_op {
#define OP(name, number) SHM_OP_##name = number,
    SHM_OPS(OP)
#undef OP
};
#define SHM_OP_COUNT_ONE(name, number) +1
#define SHM_OP_LAST                    (0 SHM_OPS(SHM_OP_COUNT_ONE)) /* numbers have no gaps */

/* Flags of a submission. */
enum {
    SHM_FLAG_STATE = 1,  /* GET and SET: rows of all segments are whole, weights and state */
    SHM_FLAG_TICKET = 2, /* POOL: the completion has a ticket, for a push */
};

/* A field that an operation does not use is 0, here and in segments, or the request is refused.
 * proto/op_fields.h has the table of used fields. */
struct shm_submission {
    uint32_t op;
    uint32_t flags; /* only SHM_FLAG_*; others are refused */
    uint32_t segment_count;
    uint32_t reserved;        /* 0 */
    uint64_t segments_offset; /* of struct shm_segment, shm_pool_segment or shm_push_segment
                                 [segment_count]; RELEASE: 0 */
    uint64_t step;     /* PUSH: the optimizers' step, from 1; GET, SET and POOL with a group: the
                          group's step that they belong to, or 0; others: 0 */
    uint64_t ticket;   /* PUSH: of the lookup, or 0 if the segments have ids; RELEASE: the ticket to
                          give up; others: 0 */
    uint64_t prefetch; /* PUSH: a prefetch to release when the push is done, or 0; others: 0 */
    uint64_t group;    /* handle from GroupInfo, or 0. PUSH: of the group whose step it is part of;
                          GET, SET and POOL: of the group that `step` refers to; others: 0 */
    uint64_t unused;   /* 0 */
};
static_assert(sizeof(struct shm_submission) == 64, "one cache line");

/* One table's part of a request. Rows lie one after another, weight_bytes each, or weight_bytes +
 * state_bytes with SHM_FLAG_STATE (TableInfo has both). The state, f32 numbers, directly follows
 * the weights. So after an odd number of f16 weights it is aligned only to 2 bytes.
 *
 * The flag belongs to the submission, not to the segment, so a batch has one layout. The daemon
 * takes the row length from one word that it copied before it reads any segment. */
struct shm_segment {
    uint64_t table; /* handle, from TableInfo */
    uint64_t ids_offset;
    uint64_t rows_offset;
    uint32_t id_count;
    uint32_t flags; /* 0 */
};
static_assert(sizeof(struct shm_segment) == 32, "wire layout");

/* One table's part of a pooled lookup. Bag b has the ids from offsets[b] up to offsets[b + 1]. */
struct shm_pool_segment {
    uint64_t table;
    uint64_t ids_offset;
    uint64_t bags_offset;    /* f32[bag_count][dim], one bag after another */
    uint64_t offsets_offset; /* uint32_t[bag_count + 1]; the first is 0, the last is id_count */
    uint64_t weights_offset; /* f32[id_count], one per id; 0: none */
    uint32_t id_count;
    uint32_t bag_count;
    uint32_t mode;   /* enum embtier_pool */
    uint32_t flags;  /* 0 */
    uint64_t unused; /* 0 */
};
static_assert(sizeof(struct shm_pool_segment) == 64, "wire layout");

/* One table's part of a push, or of a prefetch, which sets only table, ids and count. A push by
 * ticket has as many segments as the lookup, for the same tables, with a gradient for each bag. A
 * push without a ticket has a gradient for each id. The gradients of a repeated id are added up. */
struct shm_push_segment {
    uint64_t table;
    uint64_t ids_offset;       /* by ticket: 0 */
    uint64_t gradients_offset; /* f32[count][dim]; 0, only by ticket: all gradients are zero */
    uint64_t weights_offset;   /* by ticket: f32[ids of the segment], receives the gradients of the
                                  samples' weights, or 0: nowhere; without a ticket: 0 */
    double learning_rate;
    uint32_t count;    /* bags by ticket, else ids */
    uint32_t dim;      /* the table's */
    uint32_t flags;    /* 0 */
    uint32_t reserved; /* 0 */
    uint64_t unused;   /* 0 */
};
static_assert(sizeof(struct shm_push_segment) == 64, "wire layout");

/* A `limit` with this value changes an error's meaning. NONFINITE: gradients and weights are
 * finite, but the update would make a row NaN or infinite. TOO_LARGE: a row gets more gradients
 * than can be added up for one row, from all members of a group together. */
#define SHM_LIMIT_OF_UPDATE UINT64_MAX

struct shm_completion {
    _Atomic uint32_t sequence; /* n + 1 when request n is done; a futex */
    uint32_t err;              /* enum embtier_err */
    uint32_t segment;          /* the segment the error is about, or UINT32_MAX */
    uint32_t field;    /* 0, or 1 + the offset of an unused field that is not 0, in the segment or,
                          without one, the submission; `value` has its bits */
    uint64_t value;    /* the wrong row id, offset, count, bag … */
    uint64_t limit;    /* the limit that `value` was compared with */
    uint64_t hit_rows; /* rows served from memory, without a read from SSD */
    uint64_t ticket;   /* POOL with SHM_FLAG_TICKET, and PREFETCH */
    uint64_t unused[2];
};
static_assert(sizeof(struct shm_completion) == 64, "one cache line");

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
    return sizeof(struct shm_control) + (uint64_t)slot_count * sizeof(struct shm_completion);
}

static inline uint64_t shm_arena_payload_offset(uint32_t slot_count)
{
    return sizeof(struct shm_arena_head) + (uint64_t)slot_count * sizeof(struct shm_submission);
}

static inline struct shm_completion *shm_completions(struct shm_control *control)
{
    return (struct shm_completion *)(control + 1);
}

static inline struct shm_submission *shm_submissions(struct shm_arena_head *head)
{
    return (struct shm_submission *)(head + 1);
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
static inline void shm_publish_completion(struct shm_completion *completion, uint32_t sequence)
{
    atomic_store_explicit(&completion->sequence, sequence, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with the fence in shm_client_waits() */
}

static inline uint32_t shm_read_sequence(const struct shm_completion *completion)
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
