/* SPDX-License-Identifier: Apache-2.0 */
/* ops.h: how a client asks for an operation on rows, the same for every transport.
 *
 * A request is a submission, which names an operation, and an array of segments, one for each table
 * of the batch. Segments, ids, rows, bags and gradients lie in a region of bytes, in any places
 * that the client likes. Their offsets count from the start of the region. The answer is a
 * completion. A transport decides how these travel: shm_ring.h has the rings in shared memory.
 *
 * Requests of a session have the numbers 0, 1, 2 … wrapping at 2^32. They start in order; those
 * that touch the same row take effect in order; completions come in any order.
 *
 * Anything that the client writes may be hostile. The daemon copies a submission and its segments
 * once, checks the copies, and never reads the originals again. It copies ids once as it checks
 * them. The offsets of bags are the only words in the region that it reads while the client can
 * change them, and it checks each after every read. It computes with numbers of rows, weights and
 * bags as they are. It checks once that gradients are finite, against mistakes, not malice. */
#ifndef EMBTIER_PROTO_OPS_H
#define EMBTIER_PROTO_OPS_H

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

#define OP_SLOTS_MAX         1024 /* requests of a session under way */
#define OP_SLOTS_DEFAULT     64
#define OP_SEGMENTS_MAX      65536 /* tables in one request; a repeated table counts again */
#define OP_POOL_SEGMENTS_MAX 32768 /* the same in a pooled lookup or a push */
#define OP_ALIGN             64 /* a client lays out segments, ids and rows at multiples of this */
#define OP_ID_ALIGN          8  /* offsets of ids and segments are multiples of this … */
#define OP_ROW_ALIGN         2  /* … of rows, of this … */
#define OP_NUMBER_ALIGN      4  /* … and of bags, weights and offsets of bags, of this */

/* OP(name, number): all operations. */
#define OP_NUMBERS(OP)                                                                             \
    OP(GET, 1)      /* weights of rows, from the server to the segment's rows */                   \
    OP(SET, 2)      /* weights of rows, from the segment's rows to the server */                   \
    OP(POOL, 3)     /* rows of bags, pooled, from the server to the segment's bags */              \
    OP(PUSH, 4)     /* gradients, from the segment's gradients to the server's optimizers */       \
    OP(RELEASE, 5)  /* gives up a ticket that is no longer needed; no segments */                  \
    OP(PREFETCH, 6) /* brings the rows of ids into DRAM and pins them; gives a ticket */

enum op_number {
#define OP(name, number) OP_##name = number,
    OP_NUMBERS(OP)
#undef OP
};
#define OP_COUNT_ONE(name, number) +1
#define OP_LAST                    (0 OP_NUMBERS(OP_COUNT_ONE)) /* numbers have no gaps */

/* Flags of a submission. */
enum {
    OP_FLAG_STATE = 1,  /* GET and SET: rows of all segments are whole, weights and state */
    OP_FLAG_TICKET = 2, /* POOL: the completion has a ticket, for a push */
};

/* A field that an operation does not use is 0, here and in segments, or the request is refused.
 * proto/op_fields.h has the table of used fields. */
struct op_submission {
    uint32_t op;
    uint32_t flags; /* only OP_FLAG_*; others are refused */
    uint32_t segment_count;
    uint32_t reserved;        /* 0 */
    uint64_t segments_offset; /* of struct op_segment, op_pool_segment or op_push_segment
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
static_assert(sizeof(struct op_submission) == 64, "one cache line");

/* One table's part of a request. Rows lie one after another, weight_bytes each, or weight_bytes +
 * state_bytes with OP_FLAG_STATE (TableInfo has both). The state, f32 numbers, directly follows
 * the weights. So after an odd number of f16 weights it is aligned only to 2 bytes.
 *
 * The flag belongs to the submission, not to the segment, so a batch has one layout. The daemon
 * takes the row length from one word that it copied before it reads any segment. */
struct op_segment {
    uint64_t table; /* handle, from TableInfo */
    uint64_t ids_offset;
    uint64_t rows_offset;
    uint32_t id_count;
    uint32_t flags; /* 0 */
};
static_assert(sizeof(struct op_segment) == 32, "wire layout");

/* One table's part of a pooled lookup. Bag b has the ids from offsets[b] up to offsets[b + 1]. */
struct op_pool_segment {
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
static_assert(sizeof(struct op_pool_segment) == 64, "wire layout");

/* One table's part of a push, or of a prefetch, which sets only table, ids and count. A push by
 * ticket has as many segments as the lookup, for the same tables, with a gradient for each bag. A
 * push without a ticket has a gradient for each id. The gradients of a repeated id are added up. */
struct op_push_segment {
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
static_assert(sizeof(struct op_push_segment) == 64, "wire layout");

/* A `limit` with this value changes an error's meaning. NONFINITE: gradients and weights are
 * finite, but the update would make a row NaN or infinite. TOO_LARGE: a row gets more gradients
 * than can be added up for one row, from all members of a group together. */
#define OP_LIMIT_OF_UPDATE UINT64_MAX
/* BUSY with a `field`: a quota of the user refuses the request for now (quota.h). The value is what
 * the request needs, the limit is the quota. */
/* NO_SPACE of an update that was refused before it began: the value is the bytes that it may take
 * on SSD, the limit is the bytes that there is room for. Both are 0 if a write failed. */

/* The answer to a request. */
struct op_completion {
    _Atomic uint32_t sequence; /* n + 1 when request n is done; in shared memory a futex */
    uint32_t err;              /* enum embtier_err */
    uint32_t segment;          /* the segment the error is about, or UINT32_MAX */
    uint32_t field;    /* 0, or 1 + the offset of an unused field that is not 0, in the segment or,
                          without one, the submission; `value` has its bits. BUSY: 0, or the quota
                          (quota.h) */
    uint64_t value;    /* the wrong row id, offset, count, bag … */
    uint64_t limit;    /* the limit that `value` was compared with */
    uint64_t hit_rows; /* rows served from memory, without a read from SSD */
    uint64_t ticket;   /* POOL with OP_FLAG_TICKET, and PREFETCH */
    uint64_t unused[2];
};
static_assert(sizeof(struct op_completion) == 64, "one cache line");

#endif
