/* SPDX-License-Identifier: Apache-2.0 */
/* layout_trial.h: one layout under trial: a shard's database, opened as the server opens it, and
 * what it costs.
 *
 * A trial goes faster than the server while RocksDB has nothing to compact, and at the server's
 * rate while it has. So the same rows meet the same levels, in less time. A turn ends when nothing
 * is left to compact: layouts that take turns do not disturb each other. Compactions begin when the
 * server's scheduler would let them, but are not put off while lookups wait for the drive. Thread:
 * one; reads have threads of their own. */
#ifndef EMBTIER_TOOLS_TRIAL_LAYOUT_TRIAL_H
#define EMBTIER_TOOLS_TRIAL_LAYOUT_TRIAL_H

#include "tools/trial/trial_spec.h"

struct layout_trial;

/* The costs of one turn. */
struct trial_turn {
    uint64_t row_bytes; /* handed to RocksDB, with keys and heads */
    uint64_t flush_bytes, compaction_bytes, blob_bytes, log_bytes, other_bytes;
    uint64_t system_bytes; /* written to storage, as the system counts; 0: it does not */
    uint64_t updates;      /* by clients */
    uint64_t rows;         /* written */
    uint64_t stored_bytes, stored_most_bytes; /* of files: at the end, and at most */
    double write_s;
    double reads_per_s;
};

typedef void trial_tell_fn(void *context, enum config_layout layout);

/* Loads all rows. @tell is called ten times a second or so, with @context. @spec is borrowed. */
MUST_CHECK enum embtier_err layout_trial_new(const struct trial_spec *spec,
                                             enum config_layout layout, trial_tell_fn *tell,
                                             void *context, struct layout_trial **ret_trial,
                                             struct err_msg *msg);
void layout_trial_free(struct layout_trial *trial);
DEFINE_CLEANUP(struct layout_trial, layout_trial_free)

/* Writes @share of the trial's bytes, waits for compactions, and reads for @read_s. */
MUST_CHECK enum embtier_err layout_trial_turn(struct layout_trial *trial, double share,
                                              double read_s, struct trial_turn *ret_turn,
                                              struct err_msg *msg);
bool layout_trial_is_direct(const struct layout_trial *trial);

#endif
