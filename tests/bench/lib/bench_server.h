/* SPDX-License-Identifier: Apache-2.0 */
/* bench_server.h: the real daemon under a benchmark, its tables, and its counters.
 *
 * Environment: that of harness.h; EMBTIER_BENCH_TLS, if it is set: clients over TCP have TLS. */
#ifndef EMBTIER_TESTS_BENCH_LIB_BENCH_SERVER_H
#define EMBTIER_TESTS_BENCH_LIB_BENCH_SERVER_H

#include "client/include/embtier.h"
#include "tests/bench/lib/bench.h"
#include "tests/integration/harness.h"

#define BENCH_TABLES_MAX 64

/* The settings that differ between benchmarks; 0 means the default in brackets. */
struct bench_server_shape {
    uint32_t lanes;            /* [1] */
    uint32_t readers_per_lane; /* [2] */
    uint32_t shards;           /* [8] */
    uint64_t dram_bytes;
    uint64_t array_bytes; /* in addition to the other tiers; all tables are arrays then [none] */
    uint64_t pmem_bytes;  /* a second tier, of kind `file`, in /dev/shm if there is one [none] */
    uint64_t write_queue_bytes;
    uint64_t memtable_bytes;
    uint64_t metadata_cache_bytes;
    uint32_t background_threads;        /* [2] */
    uint32_t compaction_parallel;       /* [1] */
    uint64_t compaction_bytes;          /* a second, that compactions may write [no limit] */
    uint64_t ticket_bytes;              /* [64 MiB] */
    uint32_t batch_rows;                /* of one request [1,048,576] */
    bool listens;                       /* over TCP too, at `address` */
    bool has_tls;                       /* at `tls_address` as well */
    const char *rocksdb_options;        /* YAML, so with its quotes [null] */
    enum embtier_durability durability; /* of tables [replay] */
    enum embtier_optimizer optimizer;   /* of tables [none] */
};

struct bench_server {
    struct harness harness;
    char address[128]; /* "tcp://HOST:PORT" (harness_host()), or tls_address with EMBTIER_BENCH_TLS;
                          "" without one */
    char tls_address[128]; /* "tls://HOST:PORT?ca=FILE" */
    struct embtier *connection;
    struct embtier_table *tables[BENCH_TABLES_MAX];
    uint32_t table_count;
    uint64_t rows; /* per table */
    uint32_t dim;
    enum embtier_durability durability;
    enum embtier_optimizer optimizer;
    enum embtier_home home;
};

void bench_server_start(struct bench_server *server, const struct bench_server_shape *shape);
void bench_server_stop(struct bench_server *server); /* a clean stop; data stay */
void bench_server_again(struct bench_server *server, const struct bench_server_shape *shape);
void bench_server_done(struct bench_server *server); /* stops it and removes everything */

/* Makes tables t0, t1, … of @rows rows of @dim f32, with initial values uniform in [-1, 1). */
void bench_server_tables(struct bench_server *server, uint32_t count, uint64_t rows, uint32_t dim);

/* @parts may name any tables; ends the program on failure. */
struct embtier_batch *bench_batch(struct bench_server *server, const struct embtier_part *parts,
                                  uint32_t count);
void bench_submit(struct embtier_batch *batch, enum embtier_op op);
void bench_wait(struct embtier_batch *batch);
void bench_do(struct embtier_batch *batch, enum embtier_op op);

/* Writes numbers from -0.5 to 0.5 into the first @elements of a batch's rows. They do not compress,
 * as trained rows do not. */
void bench_fill_rows(uint64_t *random, struct embtier_batch *batch, uint64_t elements);

/* Touches every row of every table once, in order. With @op SET it stores rows of such numbers. */
void bench_touch_all(struct bench_server *server, enum embtier_op op);

enum bench_wire { BENCH_SHM, BENCH_TCP, BENCH_TLS };

/* Connects once more, with an arena of so many bytes. Thread: the
 * caller's, which then has the connection and the tables that it opens. */
struct embtier *bench_server_connect(const struct bench_server *server, enum bench_wire wire,
                                     uint64_t arena_bytes);

/* Returns the bytes that this process's connections over TCP have sent and received, as the kernel
 * counts them: with the heads of frames, and without those of packets. */
uint64_t bench_server_wire_bytes(const struct bench_server *server);

/* Waits until no shard compacts or needs to. */
void bench_server_settle(struct bench_server *server);

/* Processor time that the server has used since its start, in seconds. */
double bench_server_processor_s(const struct bench_server *server);

/* Returns a metric of `embtier stats`; with @label NULL, the sum over all labels. */
double bench_metric(struct bench_server *server, const char *name, const char *label);

#endif
