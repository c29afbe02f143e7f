/* SPDX-License-Identifier: Apache-2.0 */
/* sampler.h: samples the lookups of a running server, on its lanes, for a profile.
 *
 * A lane has each id's hash at hand (base/row_hash.h), and compares it with its table's threshold.
 * The rows below are the sample: SHARDS (Waldspurger et al., FAST 2015). Their lookups go to the
 * profiling thread in a ring, those of one row in one piece of a request together. So a hot row
 * costs no more than others. Beside them go a few random lookups, which say what the hot rows take
 * that the sample has by chance, or has not. Lookups, bags, batches and updated rows of each table
 * are counted exactly.
 *
 * A ring that fills up lowers the threshold. That thins the sample, and biases nothing. Samples are
 * lost only if that does not suffice; they are counted.
 *
 * Time counts the lookups of all tables. docs/internals/placement/served-profile.md has the
 * reasons.
 *
 * Threads: a struct sampler_lane belongs to one lane; the struct sampler to all, and to the
 * profiling thread. */
#ifndef EMBTIER_DAEMON_ENGINE_SAMPLING_SAMPLER_H
#define EMBTIER_DAEMON_ENGINE_SAMPLING_SAMPLER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/macros.h"
#include "daemon/engine/sampling/sample_ring.h"
#include "placement/trace/trace_format.h"

struct table;

#define SAMPLER_TABLES_MAX TRACE_TABLES_MAX
#define SAMPLER_RING_BYTES (512 * KIB)
/* Ids that are looked through at a time. Their places fit a sample. */
#define SAMPLER_PIECE 4096
/* Most samples of a record: each id of a piece may be sampled, and as many picked. */
#define SAMPLER_RECORD_MAX (2 * SAMPLER_PIECE)
/* The first value of pick_interval. */
#define SAMPLER_PICK_INTERVAL 64

/* A table that was looked up since the sampler was made. */
struct sampler_table {
    _Atomic bool is_there;          /* what follows is filled in */
    _Atomic uint64_t threshold;     /* rows whose hash is at most this are sampled; only falls */
    _Atomic uint32_t pick_interval; /* lookups for each random one, while not all are sampled */
    uint32_t table_id;
    struct trace_table table;
    enum embtier_optimizer optimizer;
};

/* A lane's counts of a table (base/counter.h); any thread reads those above the line. */
struct sampler_counts {
    uint64_t lookups;
    uint64_t bags;
    uint64_t batches;
    uint64_t updated_rows;
    /* ---- */
    uint32_t last_batch;
    uint32_t pick_in;    /* lookups */
    uint64_t thinned_at; /* when the ring was too full: drains, and the eighths that were used */
};

struct sampler;

/* A lane's part. */
struct sampler_lane {
    _Alignas(CACHE_LINE) struct sampler *sampler;
    struct sample_ring *ring;
    struct sampler_counts *counts; /* by slot */
    uint64_t random;
    uint32_t piece;   /* counts pieces, to tell this one's entries in `seen` */
    uint64_t samples; /* counters: put, and lost because the ring was full */
    uint64_t lost;
    uint64_t *hashes; /* scratch, SAMPLER_PIECE each */
    uint32_t *found;
    struct sample *record; /* SAMPLER_RECORD_MAX */
    struct sampler_seen *seen;
};

struct sampler {
    _Alignas(CACHE_LINE) _Atomic uint64_t time; /* lookups so far; every lane counts here */
    _Alignas(CACHE_LINE) _Atomic uint32_t batches;
    _Atomic uint32_t claimed; /* slots */
    _Atomic uint64_t drains;  /* how often the profiling thread took samples */
    uint32_t table_count;     /* slots that there are */
    uint32_t lane_count;
    _Atomic uint64_t *slots;      /* by table index: table id << 32 | slot + 1; 0: none */
    struct sampler_table *tables; /* by slot */
    struct sampler_lane lanes[];
};

/* Returns the memory of a sampler. */
uint64_t sampler_bytes(uint32_t table_count, uint32_t lane_count);
/* @table_count: the most tables that are sampled; others are left out. NO_MEMORY. */
MUST_CHECK enum embtier_err sampler_new(uint32_t table_count, uint32_t lane_count,
                                        struct sampler **ret_sampler);
void sampler_free(struct sampler *sampler);
DEFINE_CLEANUP(struct sampler, sampler_free)

/* Lowers a table's threshold; any thread. */
void sampler_thin(struct sampler_table *table, uint64_t threshold);

/* ---- The lane ---- */

/* Ids of one table that a request looks up, next to each other. */
struct sampler_lookups {
    const struct table *table; /* entered */
    uint32_t *batch;           /* the request's number here; 0: it has none yet, and gets one */
    uint32_t bags;             /* that begin with these ids */
    bool begins_segment;
    const uint64_t *hashes; /* row_hash(); */
    uint32_t stride;        /* from one to the next */
    uint32_t count;
};
void sampler_note(struct sampler_lane *lane, const struct sampler_lookups *lookups);
/* Counts rows that a request changes, each once. */
void sampler_note_updates(struct sampler_lane *lane, const struct table *table, uint64_t rows);

#endif
