/* SPDX-License-Identifier: Apache-2.0 */
/* shm_layout.h: what lies where in the memory that the daemon and one client share.
 *
 * Two memfds, made, sized and sealed by the daemon, per session:
 *
 *   control   written by the daemon, mapped read-only by the client (F_SEAL_FUTURE_WRITE):
 *             struct shm_control, then `slot_count` struct shm_completion
 *   arena     written by both: struct shm_arena_head, then `slot_count` struct shm_submission,
 * then, from shm_arena_payload_offset() on, bytes that belong to the client: segments, ids and
 * rows, where it likes
 *
 * Request n (0, 1, 2 … wrapping at 2^32) uses submission and completion n % slot_count. The client
 * fills the submission, then publishes it by storing n + 1 in `tail` (release); if `lane_asleep` is
 * set it rings the doorbell (an eventfd). The daemon copies the submission and its segments once,
 * checks the copies, and never looks at the originals again; ids are copied once as they are
 * checked. When the request is done the daemon fills the completion and stores n + 1 in its
 * `sequence` (release); then, if `client_waiting` is set, it wakes the futex on `sequence`. The
 * client may use slot n % slot_count again after it saw that. Requests are started in order; those
 * that touch the same row take effect in order; completions come in any order.
 *
 * Whatever the client writes into the arena is hostile. `tail`, `client_waiting` and the offsets of
 * bags are the only words the daemon looks at while the client can change them: each is checked
 * after it has been read, every time, and none is waited on. Numbers of rows, weights and bags are
 * calculated with; that gradients are finite is looked at once, against mistakes, not malice. */
#ifndef EMBTIER_PROTO_SHM_LAYOUT_H
#define EMBTIER_PROTO_SHM_LAYOUT_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define SHM_MAGIC             0x52454954424d45ULL /* "EMBTIER" */
#define SHM_LAYOUT_VERSION    1
#define SHM_SLOTS_MAX         1024
#define SHM_SLOTS_DEFAULT     64
#define SHM_SEGMENTS_MAX      65536 /* tables in one request, counted with repetition */
#define SHM_POOL_SEGMENTS_MAX 32768 /* the same in a pooled lookup or a push */
#define SHM_ALIGN             64 /* of segments, ids and rows: their offsets are multiples of this … */
#define SHM_ID_ALIGN          8 /* … or, for ids and segments, at least of this */
#define SHM_ROW_ALIGN         2 /* … and rows of this … */
#define SHM_NUMBER_ALIGN      4 /* … and bags, weights and offsets of bags of this */

/* OP(name, number): all operations there are. */
#define SHM_OPS(OP)                                                                                \
    OP(GET, 1)      /* weights of rows, from the server to the segment's rows */                   \
    OP(SET, 2)      /* weights of rows, from the segment's rows to the server */                   \
    OP(POOL, 3)     /* rows of bags, pooled, from the server to the segment's bags */              \
    OP(PUSH, 4)     /* gradients, from the segment's gradients to the server's optimizers */       \
    OP(RELEASE, 5)  /* the ticket is not needed any more; no segments */                           \
    OP(PREFETCH, 6) /* rows of ids come into DRAM and stay there; the completion has a ticket */

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

/* A field that an operation does not use is 0, here and in segments, or the request is refused;
 * proto/shm_fields.h has the table of them. */
struct shm_submission {
    uint32_t op;
    uint32_t flags; /* of SHM_FLAG_*; others are refused */
    uint32_t segment_count;
    uint32_t reserved;        /* 0 */
    uint64_t segments_offset; /* of struct shm_segment, shm_pool_segment or shm_push_segment
                                 [segment_count]; RELEASE: 0 */
    uint64_t step;   /* PUSH: of the optimizers, from 1; GET, SET and POOL with a group: the step of
                        the group that they belong to, or 0; others: 0 */
    uint64_t ticket; /* PUSH: of the lookup, 0: the segments have ids; RELEASE; others: 0 */
    uint64_t prefetch; /* PUSH: a prefetch that is released when it is done, or 0; others: 0 */
    uint64_t group; /* PUSH: handle of the group, of GroupInfo, whose step it is a part of; GET, SET
                       and POOL: of the one that `step` is of; or 0; others: 0 */
    uint64_t unused; /* 0 */
};
static_assert(sizeof(struct shm_submission) == 64, "one cache line");

/* A table's part of a request. Rows lie one after another, weight_bytes each, or with
 * SHM_FLAG_STATE weight_bytes + state_bytes (TableInfo has both): the state, f32 numbers, begins
 * right behind the weights, so where these are an odd number of f16 it is aligned to 2 bytes only.
 *
 * The flag is the submission's and not the segment's: a batch has one layout, and the daemon takes
 * the length of a segment's rows from one word that it copied once, before it looks at segments. */
struct shm_segment {
    uint64_t table; /* handle, from TableInfo */
    uint64_t ids_offset;
    uint64_t rows_offset;
    uint32_t id_count;
    uint32_t flags; /* 0 */
};
static_assert(sizeof(struct shm_segment) == 32, "wire layout");

/* The same for a pooled lookup. Bag b has the ids from offsets[b] up to offsets[b + 1]. */
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

/* The same for a push; of a prefetch, only table, ids and count, the rest is 0. By ticket: as many
 * segments as the lookup had, of the same tables, a gradient for each bag. Without one: a gradient
 * for each id; what an id gets that stands there twice is added up. */
struct shm_push_segment {
    uint64_t table;
    uint64_t ids_offset;       /* by ticket: 0 */
    uint64_t gradients_offset; /* f32[count][dim]; by ticket, 0: they are all zero */
    uint64_t weights_offset;   /* by ticket: f32[ids of the segment], where the gradients of the
                                  samples' weights are written; 0: nowhere. Of rows: 0 */
    double learning_rate;
    uint32_t count;    /* bags by ticket, else ids */
    uint32_t dim;      /* the table's */
    uint32_t flags;    /* 0 */
    uint32_t reserved; /* 0 */
    uint64_t unused;   /* 0 */
};
static_assert(sizeof(struct shm_push_segment) == 64, "wire layout");

/* NONFINITE with this limit: gradients and weights are finite, but the update would make a row NaN
 * or infinite. TOO_LARGE with it: a row gets more gradients than are added up for one, from all
 * members of a group together. */
#define SHM_LIMIT_OF_UPDATE UINT64_MAX

struct shm_completion {
    _Atomic uint32_t sequence; /* n + 1 when request n is done; a futex */
    uint32_t err;              /* enum embtier_err */
    uint32_t segment;          /* the segment the error is about, or UINT32_MAX */
    uint32_t field;    /* a field that the operation does not use is not 0: 1 + its offset in the
                          segment or, without one, in the submission; `value` has its bits; or 0 */
    uint64_t value;    /* what was wrong: the row id, the offset, the count, the bag … */
    uint64_t limit;    /* and what it was held against */
    uint64_t hit_rows; /* rows served from the cache */
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
    _Atomic uint32_t lane_asleep; /* nobody polls `tail`: ring the doorbell */
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

/* What the words above order. Each name is used on one side only. */

/* Client: everything written for request n is visible before tail = n + 1; then the caller looks at
 * lane_asleep. */
static inline void shm_publish_tail(struct shm_arena_head *head, uint32_t tail)
{
    atomic_store_explicit(&head->tail, tail, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with the fence in shm_lane_sleeps() */
}

/* Daemon: sees all that was written before the tail it reads. */
static inline uint32_t shm_read_tail(const struct shm_arena_head *head)
{
    return atomic_load_explicit(&head->tail, memory_order_acquire);
}

/* Daemon: says that nobody polls; the caller then looks at the tail once more, so that one of the
 * two sees the other. */
static inline void shm_lane_sleeps(struct shm_control *control, uint32_t asleep)
{
    atomic_store_explicit(&control->lane_asleep, asleep, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

static inline uint32_t shm_lane_is_asleep(const struct shm_control *control)
{
    return atomic_load_explicit(&control->lane_asleep, memory_order_relaxed);
}

/* Daemon: the completion and the rows are visible before the sequence; then the caller looks at
 * client_waiting. */
static inline void shm_publish_completion(struct shm_completion *completion, uint32_t sequence)
{
    atomic_store_explicit(&completion->sequence, sequence, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with the fence in shm_client_waits() */
}

static inline uint32_t shm_read_sequence(const struct shm_completion *completion)
{
    return atomic_load_explicit(&completion->sequence, memory_order_acquire);
}

/* Client: about to sleep; the caller then looks at the sequence once more. */
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
