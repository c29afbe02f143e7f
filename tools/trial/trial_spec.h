/* SPDX-License-Identifier: Apache-2.0 */
/* trial_spec.h: a trial as `embtier tune` asks for it, and the model of one shard that it becomes.
 *
 * The rows of a server spread evenly over its shards, so one shard has the write amplification of
 * all. If even one shard has more rows than the time is enough for, the trial has fewer. Its write
 * buffers, levels and files are then smaller in proportion: amplification depends on their ratio to
 * the rows, not on their bytes. Write buffers have a least length; a trial that needs smaller ones
 * is not to scale. Thread: one. */
#ifndef EMBTIER_TOOLS_TRIAL_TRIAL_SPEC_H
#define EMBTIER_TOOLS_TRIAL_TRIAL_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"

struct json_t;

struct trial_table {
    uint64_t rows;
    uint32_t row_bytes; /* weights and optimizer state */
    uint32_t first;     /* of the trial's rows; the next table's first ends it */
};

struct trial_spec {
    struct json_t *json;                 /* has the texts */
    const char *directory, *config_path; /* the path may be NULL */
    struct trial_table *tables;
    uint32_t table_count, row_bytes_max;
    bool is_logged;
    double updates_per_s, reads_share, zipf, seconds;
    uint64_t cache_bytes;
    uint32_t layouts; /* a bit for each enum config_layout */

    /* The model; after trial_spec_scale(). */
    uint32_t shards, rows;
    double scale;                 /* of the trial to one shard, at most 1 */
    double each_of;               /* rows of the server for each row of the trial */
    double row_bytes, live_bytes; /* on average; of all rows of the trial */
    bool is_to_scale;
    uint64_t buffer_bytes; /* of one write buffer */
};

void trial_spec_clear(struct trial_spec *spec);
/* Reads a file of JSON. */
MUST_CHECK enum embtier_err trial_spec_read(const char *path, struct trial_spec *ret_spec,
                                            struct err_msg *msg);
/* Works out the model for a server with @config. */
MUST_CHECK enum embtier_err trial_spec_scale(struct trial_spec *spec, const struct config *config,
                                             struct err_msg *msg);
/* Returns the table of a row of the trial. */
const struct trial_table *trial_spec_table(const struct trial_spec *spec, uint32_t row);

#endif
