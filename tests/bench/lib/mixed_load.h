/* SPDX-License-Identifier: Apache-2.0 */
/* mixed_load.h: the load of `mixed` and its kin: more rows than the cache holds, read and written.
 *
 * Zipf 1.05 over 8 M rows of 512 bytes, all stored, ids scrambled; a batch of 4,096 is read,
 * changed and written, with four in flight, by one client. DRAM for 15 % of the rows' bytes, if the
 * shape does not say otherwise. Rows a second are rows read plus rows written.
 *
 * Thread: one, but for mixed_load_ids(). What cannot be set up ends the program. */
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
#define MIXED_PATIENCE       16 /* turns are so many times as long: compaction comes and goes */

struct mixed_load {
    struct bench_server server;
    struct bench_server_shape shape;
    const struct trace *trace; /* borrowed */
    uint64_t rows;
    uint32_t table_id;
    _Atomic uint64_t next_draw;
    struct embtier_batch *batches[MIXED_IN_FLIGHT];
    uint64_t turns[MIXED_IN_FLIGHT]; /* batches each slot has begun to read */
    bool is_set[MIXED_IN_FLIGHT];    /* what is in flight */
    uint64_t asked, hits;            /* rows of GET */

    /* Set by the caller when nothing is in flight. */
    uint32_t changed_of;  /* one batch of so many is changed and written [1: every one] */
    bool writes_all;      /* the others are written too, as they were */
    unsigned char *dirty; /* bit map of the rows that were changed; NULL: not noted */
};

uint64_t mixed_rows(void);
uint64_t mixed_cached_bytes(void); /* of DRAM */
/* The draws that every load goes through, in turn, round and round. */
struct trace mixed_trace(void);

/* Starts a server of @shape (whose dram_bytes, shards, readers and metadata cache are as above
 * where they are 0), stores all rows, and starts it anew, when compactions are done. */
void mixed_load_start(struct mixed_load *load, const struct bench_server_shape *shape,
                      const struct trace *trace);
void mixed_load_pause(struct mixed_load *load); /* stops the server, cleanly */
void mixed_load_resume(struct mixed_load *load);
void mixed_load_done(struct mixed_load *load);

/* Goes on for @seconds, and returns rows a second. */
double mixed_load_run(struct mixed_load *load, double seconds);
/* One turn; as many as it takes until the cache is full of what belongs there. */
double mixed_load_turn(struct mixed_load *load);
void mixed_load_warm_up(struct mixed_load *load);

/* The next MIXED_BATCH_ROWS ids. Any thread. */
void mixed_load_ids(struct mixed_load *load, uint64_t *ids);
/* What a trainer does to the rows of a batch, in little. */
void mixed_change(void *rows);

#endif
