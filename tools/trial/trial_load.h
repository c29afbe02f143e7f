/* SPDX-License-Identifier: Apache-2.0 */
/* trial_load.h: the rows that one shard writes, one after the other, as its cache would write them.
 *
 * Popularity follows Zipf's law over all rows of the server. A trial has one of every @each_of
 * rows, taken at even ranks, so it has hot and cold rows in the same proportion. A cache of exact
 * LRU stands before the shard: an update of a row in it writes nothing. A dirty row is written when
 * it leaves, or at a checkpoint. Without a cache, each update is written at once, as a logged
 * table's is. Thread: one at a time; trial_load_read() from any number while no other call runs. */
#ifndef EMBTIER_TOOLS_TRIAL_TRIAL_LOAD_H
#define EMBTIER_TOOLS_TRIAL_TRIAL_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "placement/random.h"

struct trial_load;

struct trial_load_opts {
    uint32_t rows;               /* of the trial; 1 or more */
    double each_of;              /* rows of the server for each row of the trial; 1 or more */
    double zipf;                 /* exponent, 0 to 10 */
    uint32_t cache_rows;         /* 0: no cache */
    double reads_share;          /* of all accesses to the cache, below 1 */
    uint64_t checkpoint_updates; /* between two checkpoints; 0: none */
    uint64_t seed;
};

MUST_CHECK enum embtier_err trial_load_new(const struct trial_load_opts *opts,
                                           struct trial_load **ret_load, struct err_msg *msg);
void trial_load_free(struct trial_load *load);
DEFINE_CLEANUP(struct trial_load, trial_load_free)

/* Updates rows until @count have to be written, a checkpoint ends, or a million accesses are made.
 * Returns how many have to be written, which may be none; their numbers may repeat. */
uint32_t trial_load_write(struct trial_load *load, uint32_t count, uint32_t *ret_rows,
                          bool *ret_checkpoint);
/* Returns the updates so far. */
uint64_t trial_load_updates(const struct trial_load *load);
/* Draws a row that a lookup would have to read: one that the cache has not. */
uint32_t trial_load_read(const struct trial_load *load, struct random *random);

#endif
