/* SPDX-License-Identifier: Apache-2.0 */
/* split_moves.h: the changes of a draft that promise most, by its weights and prices.
 *
 * A move of an item to another GPU, or an exchange of two, changes the largest time by the change
 * of costs at these prices, as long as the prices stay as they are. They do not when much moves, so
 * the square of the time and bytes that a GPU gains or loses is taken off. Only cutting anew tells
 * whether a change helps. Thread: any. */
#ifndef EMBTIER_PLACEMENT_SPLIT_SPLIT_MOVES_H
#define EMBTIER_PLACEMENT_SPLIT_SPLIT_MOVES_H

#include "placement/split/split_draft.h"

#define SPLIT_MOVES_MAX  256
#define SPLIT_FAILED_MAX 64

/* Item @first goes to @gpu. Item @second goes to where @first was, unless it is MODEL_ANY. */
struct split_move {
    double gain; /* promised, in units of the draft's costs */
    uint32_t first, gpu, second;
};

/* An item on a GPU, at its cheapest cuts. */
struct split_load {
    double cost;        /* INFINITY: it is not allowed there */
    double time, bytes; /* as shares of the largest time, and of the private level */
};

struct split_moves {
    const struct split_instance *x; /* borrowed */
    struct split_load *loads;       /* item_count * gpu_count */
    double caution;                 /* factor of what is taken off for squares; set by the caller */
    double steepness;               /* cost of the square of a load */
    uint32_t count;
    struct split_move moves[SPLIT_MOVES_MAX]; /* those that promise most come first */
    uint32_t failed_count;                    /* so far; the last ones are not listed again */
    struct split_move failed[SPLIT_FAILED_MAX];
};

MUST_CHECK enum embtier_err split_moves_new(const struct split_instance *x,
                                            struct split_moves **ret_moves);
void split_moves_free(struct split_moves *moves);
DEFINE_CLEANUP(struct split_moves, split_moves_free)

/* Lists the moves of a draft that has cuts, as far as @caution leaves them a gain. */
void split_moves_find(struct split_moves *moves, const struct split_draft *d);
/* Makes up to @most moves of the draft that they were found for, from move @first on. No item is
 * moved twice, and no GPU gets two. The tables' uses are not cut anew. */
void split_moves_take(const struct split_moves *moves, uint32_t first, uint32_t most,
                      struct split_draft *d);
/* Tells that a move did not help. */
void split_moves_fail(struct split_moves *moves, uint32_t move);

#endif
