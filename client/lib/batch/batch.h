/* SPDX-License-Identifier: Apache-2.0 */
/* batch.h: a batch's place in the arena and the state of its request. Thread: the connection's. */
#ifndef EMBTIER_CLIENT_LIB_BATCH_BATCH_H
#define EMBTIER_CLIENT_LIB_BATCH_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "client/include/embtier.h"
#include "client/lib/arena_alloc.h"

enum batch_state {
    BATCH_IDLE,      /* never submitted */
    BATCH_SUBMITTED, /* the server has it */
    BATCH_ANSWERED,  /* the result is here, but the caller has not asked for it */
    BATCH_TOLD,      /* the caller has the result */
};

enum batch_kind {
    BATCH_OF_ROWS,      /* embtier_batch_new(), with state or without */
    BATCH_OF_BAGS,      /* for pooled lookups, and pushes by their tickets */
    BATCH_OF_GRADIENTS, /* for pushes by rows */
    BATCH_OF_PREFETCH,  /* ids alone */
};

/* The parts of a completion that outlive its slot. */
struct batch_result {
    enum embtier_err err;
    uint32_t segment;
    uint64_t value;
    uint64_t limit;
    uint64_t hit_rows;
    uint64_t ticket;
    uint32_t field;     /* as in struct op_completion */
    int is_of_prefetch; /* for a push: the error is about the prefetch that it named */
};

struct batch_part {
    struct embtier_table *table;
    uint32_t count;
    uint32_t count_max;
    uint64_t ids_offset;  /* in the arena */
    uint64_t rows_offset; /* or the offset of bags or gradients */

    /* A batch of bags. */
    enum embtier_pool mode;
    uint32_t bag_count;
    uint32_t bag_count_max;
    uint64_t offsets_offset;
    uint64_t weights_offset; /* 0: none */
    int skipped;             /* in a push by ticket: its gradients are all zero */
};

struct span_list;

struct embtier_batch {
    struct embtier *server;
    struct embtier_batch *next;
    struct embtier_batch *previous;
    struct arena_block *block; /* segments, ids of all parts, offsets and weights of bags, then
                                  rows, bags or gradients of each part */
    enum batch_kind kind;
    enum batch_state state;
    enum embtier_op op; /* of the last request */
    uint32_t request;   /* its number, while SUBMITTED */
    struct batch_result result;
    uint64_t hit_rows;    /* of the last finished request */
    uint64_t ticket;      /* 0: none; unusable while a push or release of it is SUBMITTED */
    bool has_lost_ticket; /* it has none because its session has ended */
    struct embtier_batch *prefetch; /* released by the push that is SUBMITTED; else NULL */
    struct embtier_batch *lent_to;  /* the SUBMITTED push that releases this prefetch; else NULL */
    struct embtier_group *group;    /* the group to whose step lookups and SETs belong, or NULL */
    uint64_t group_step;            /* the step in `group` */
    struct embtier_group *asked_group; /* the group that the last request named, or NULL */
    uint64_t asked_step;               /* the step that it named */
    int has_state;                     /* rows are whole */
    uint32_t part_count;
    struct batch_part parts[];
};

const char *batch_table_name(const struct embtier_batch *batch, uint32_t part);

/* Where a request failed, for the end of a message. Only a batch of several parts has numbers of
 * parts that its user knows. */
struct part_text {
    char text[EMBTIER_TABLE_NAME_MAX + 40];
};
/* " (part 2)", or "" in a batch of one part. */
const char *batch_part_text(const struct embtier_batch *batch, uint32_t part,
                            struct part_text *buffer);
/* " (part 2, table 'users')", or " (table 'users')" in a batch of one part. */
const char *batch_table_text(const struct embtier_batch *batch, uint32_t part,
                             struct part_text *buffer);
#define PART_TEXT(batch, part)       batch_part_text(batch, part, &(struct part_text){ { 0 } })
#define PART_TABLE_TEXT(batch, part) batch_table_text(batch, part, &(struct part_text){ { 0 } })
/* Returns the bytes of the batch's segments. */
uint64_t batch_segments_bytes(const struct embtier_batch *batch);
/* Returns the bytes that a part's rows, bags or gradients take now. */
uint64_t batch_rows_bytes(const struct embtier_batch *batch, uint32_t part);
/* Fills in the spans that a request sends and wants; see spans.c. @push is NULL unless it is a
 * push. */
void batch_fill_spans(const struct embtier_batch *batch, enum embtier_op op,
                      const struct embtier_push_options *push, struct span_list *sent,
                      struct span_list *wanted);
/* BUSY if the server may still read and write the batch's memory. */
MUST_CHECK enum embtier_err batch_refuse_in_flight(struct embtier_batch *batch);
void batches_free(struct embtier *server); /* all of them, in any state */

/* Keeps the answer if it has come. True if the batch is still SUBMITTED. See request.c. */
int request_is_pending(struct embtier_batch *batch);
/* As request_is_pending(), for the push to which the batch's prefetch is lent. */
int batch_is_lent(struct embtier_batch *batch);
/* The session that gave the batch's ticket or prefetch has ended. */
void batch_lose_ticket(struct embtier_batch *batch);
/* Fails all requests without an answer, because the connection is over. */
void requests_fail(struct embtier *server);

#endif
