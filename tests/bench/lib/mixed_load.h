/* SPDX-License-Identifier: Apache-2.0 */
/* mixed_load.h: the load of `mixed` and its kin, which reads and writes more rows than the cache
 * holds.
 *
 * 8 M rows of 512 bytes are all stored; accesses are Zipf 1.05 over them, with scrambled ids.
 * One client reads batches of 4,096 rows, changes and writes them, with four in flight. DRAM is
 * for 15 % of the rows' bytes, unless the shape says otherwise. Rows a second are rows read plus
 * rows written.
 *
 * Thread: one, except for mixed_load_ids(). Failures of set-up end the program. */
#ifndef EMBTIER_TESTS_BENCH_LIB_MIXED_LOAD_H
#define EMBTIER_TESTS_BENCH_LIB_MIXED_LOAD_H

#include <stdatomic.h>

#include "tests/bench/lib/bench_server.h"
#include "tests/bench/lib/trace.h"

#define MIXED_DIM            128
#define MIXED_ROW_BYTES      (MIXED_DIM * sizeof(float))
#define MIXED_BATCH_ROWS     4096
#define MIXED_IN_FLIGHT      4
#define MIXED_SHARDS         8
#define MIXED_READERS        4
#define MIXED_METADATA_BYTES (128 * MIB)
#define MIXED_CACHED_SHARE   0.15
#define MIXED_PATIENCE       16 /* makes turns longer: compaction comes and goes */

struct mixed_load {
    struct bench_server server;
    struct bench_server_shape shape;
    const struct trace *trace; /* borrowed */
    uint64_t rows;
    uint32_t table_id;
    _Atomic uint64_t next_draw;
    struct embtier_batch *batches[MIXED_IN_FLIGHT];
    uint64_t turns[MIXED_IN_FLIGHT]; /* batches that each slot has begun to read */
    bool is_set[MIXED_IN_FLIGHT];    /* true if a SET is in flight, false if a GET is */
    uint64_t asked, hits;            /* rows of GET */

    /* The caller sets these when nothing is in flight. */
    uint32_t changed_of;  /* one batch in this many is changed and written [1: every one] */
    bool writes_all;      /* writes the other batches too, unchanged */
    unsigned char *dirty; /* bit map of the changed rows; NULL: not recorded */
};

uint64_t mixed_rows(void);
uint64_t mixed_cached_bytes(void); /* of DRAM */
/* The draws that every load goes through, round and round. */
struct trace mixed_trace(void);

/* Starts a server of @shape, stores all rows, and restarts it when compactions are done. Where
 * the shape's dram_bytes, shards, readers and metadata cache are 0, the values above are taken. */
void mixed_load_start(struct mixed_load *load, const struct bench_server_shape *shape,
                      const struct trace *trace);
void mixed_load_pause(struct mixed_load *load); /* stops the server, cleanly */
void mixed_load_resume(struct mixed_load *load);
void mixed_load_done(struct mixed_load *load);

/* Goes on for @seconds; returns rows a second. */
double mixed_load_run(struct mixed_load *load, double seconds);
/* Run one turn, and as many as it takes until the cache is full of the rows that belong there. */
double mixed_load_turn(struct mixed_load *load);
void mixed_load_warm_up(struct mixed_load *load);

/* Draws the next MIXED_BATCH_ROWS ids. Any thread. */
void mixed_load_ids(struct mixed_load *load, uint64_t *ids);
/* Changes the rows of a batch, a little as a trainer does. */
void mixed_change(void *rows);

#endif
