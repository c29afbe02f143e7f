/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/lib/bench_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/macros.h"

#define ARENA_BYTES   (512 * MIB)
#define TOUCH_ROWS    8192
#define TOUCH_PARTS   1
#define MAX_IN_FLIGHT 64
#define MEMORY_FILES  "/dev/shm"
#define ALL_TLS       "EMBTIER_BENCH_TLS"

/* Chooses addresses, and writes the configuration for them. */
static void listen_at(struct bench_server *server, bool has_tls, char *yaml, size_t yaml_bytes)
{
    const char *const host = harness_host(), *const folder = server->harness.directory;
    const unsigned port = bench_free_port(), tls_port = bench_free_port();
    char tls[256] = "", tls_address[64] = "";

    snprintf(server->address, sizeof(server->address), "tcp://%s:%u", host, port);
    if (has_tls) {
        harness_make_certificates(&server->harness, host);
        snprintf(tls_address, sizeof(tls_address), ", \"tls://%s:%u\"", host, tls_port);
        snprintf(server->tls_address, sizeof(server->tls_address), "tls://%s:%u?ca=%s/ca.crt", host,
                 tls_port, folder);
        snprintf(tls, sizeof(tls), "tls:\n  certificate: %s/server.crt\n  key: %s/server.key\n",
                 folder, folder);
    }
    snprintf(yaml, yaml_bytes, "rpc:\n  listen: [\"%s\"%s]\n  insecure: %s\n%s", server->address,
             tls_address, strcmp(host, "127.0.0.1") == 0 ? "no" : "yes", tls);
    if (getenv(ALL_TLS))
        memcpy(server->address, server->tls_address, sizeof(server->address));
}

static void configure(struct bench_server *server, const struct bench_server_shape *shape)
{
    const struct harness *const harness = &server->harness;
    const uint64_t tier_bytes = shape->dram_bytes + shape->array_bytes;
    char pmem[256] = "", rpc[512] = "";
    char yaml[4096];

    if (shape->pmem_bytes)
        snprintf(pmem, sizeof(pmem), "    - {name: pmem, kind: file, path: %s, bytes: %llu}\n",
                 access(MEMORY_FILES, W_OK) == 0 ? MEMORY_FILES : harness->directory,
                 (unsigned long long)shape->pmem_bytes);
    if (shape->listens)
        listen_at(server, shape->has_tls || getenv(ALL_TLS), rpc, sizeof(rpc));
    snprintf(
        yaml, sizeof(yaml),
        "data:\n  directories: [%s/rows]\n  shards_per_directory: %u\n"
        "lanes:\n  count: %u\n  readers_per_lane: %u\n  write_queue_bytes: %llu\n"
        "  ticket_bytes: %llu\n"
        "cache:\n  tiers:\n    - {name: dram, kind: dram, bytes: %llu, array_bytes: %llu}\n%s"
        "rocksdb:\n  memtable_bytes: %llu\n  metadata_cache_bytes: %llu\n"
        "  background_threads: %u\n  compaction_parallel: %u\n  "
        "compaction_bytes_per_second: %llu\n  options: %s\n"
        "socket:\n  path: %s\n  max_arena_bytes: 1GiB\n  max_batch_rows: %u\n%s",
        harness->directory, shape->shards ? shape->shards : 8, shape->lanes ? shape->lanes : 1,
        shape->readers_per_lane ? shape->readers_per_lane : 2,
        (unsigned long long)(shape->write_queue_bytes ? shape->write_queue_bytes : 64 * MIB),
        (unsigned long long)(shape->ticket_bytes ? shape->ticket_bytes : 64 * MIB),
        (unsigned long long)tier_bytes, (unsigned long long)shape->array_bytes, pmem,
        (unsigned long long)(shape->memtable_bytes ? shape->memtable_bytes : 256 * MIB),
        (unsigned long long)(shape->metadata_cache_bytes ? shape->metadata_cache_bytes : 64 * MIB),
        shape->background_threads ? shape->background_threads : 2,
        shape->compaction_parallel ? shape->compaction_parallel : 1,
        (unsigned long long)shape->compaction_bytes,
        shape->rocksdb_options ? shape->rocksdb_options : "null", harness->socket,
        shape->batch_rows ? shape->batch_rows : 1048576, rpc);
    harness_configure(harness, yaml);
    server->durability = shape->durability;
    server->optimizer = shape->optimizer;
    server->home = shape->array_bytes ? EMBTIER_HOME_ARRAY : EMBTIER_HOME_CACHE;
}

struct embtier *bench_server_connect(const struct bench_server *server, enum bench_wire wire,
                                     uint64_t arena_bytes)
{
    const char *const addresses[] = { [BENCH_SHM] = server->harness.socket,
                                      [BENCH_TCP] = server->address,
                                      [BENCH_TLS] = server->tls_address };
    struct embtier_connect_options options = EMBTIER_CONNECT_OPTIONS_INIT;
    struct embtier *connection;

    options.socket_path = addresses[wire];
    options.arena_bytes = arena_bytes;
    options.max_in_flight = MAX_IN_FLIGHT;
    options.timeout_ms = 0;
    options.client_name = "bench";
    if (embtier_connect(&options, &connection) != EMBTIER_OK)
        bench_die("%s", embtier_message(NULL));
    return connection;
}

static void connect_to(struct bench_server *server)
{
    server->connection = bench_server_connect(server, BENCH_SHM, ARENA_BYTES);
}

void bench_server_start(struct bench_server *server, const struct bench_server_shape *shape)
{
    memset(server, 0, sizeof(*server));
    harness_new(&server->harness);
    configure(server, shape);
    harness_start(&server->harness);
    connect_to(server);
}

void bench_server_stop(struct bench_server *server)
{
    embtier_disconnect(TAKE(server->connection));
    harness_stop(&server->harness);
}

void bench_server_again(struct bench_server *server, const struct bench_server_shape *shape)
{
    configure(server, shape);
    harness_start(&server->harness);
    connect_to(server);
    if (server->table_count)
        bench_server_tables(server, server->table_count, server->rows, server->dim);
}

void bench_server_done(struct bench_server *server)
{
    embtier_disconnect(TAKE(server->connection));
    harness_done(&server->harness);
}

void bench_server_tables(struct bench_server *server, uint32_t count, uint64_t rows, uint32_t dim)
{
    server->table_count = count;
    server->rows = rows;
    server->dim = dim;
    for (uint32_t t = 0; t < count; t++) {
        struct embtier_table_options options = EMBTIER_TABLE_OPTIONS_INIT;
        char name[16];

        snprintf(name, sizeof(name), "t%u", t);
        options.name = name;
        options.rows = rows;
        options.dim = dim;
        options.init = EMBTIER_INIT_UNIFORM;
        options.init_first = -1;
        options.init_second = 1;
        options.durability = server->durability;
        options.optimizer = server->optimizer;
        options.home = server->home;
        options.if_not_exists = 1;
        if (embtier_table_create(server->connection, &options, &server->tables[t]) != EMBTIER_OK)
            bench_die("%s", embtier_message(server->connection));
    }
}

struct embtier_batch *bench_batch(struct bench_server *server, const struct embtier_part *parts,
                                  uint32_t count)
{
    struct embtier_batch *batch;

    if (embtier_batch_new(server->connection, parts, count, &batch) != EMBTIER_OK)
        bench_die("%s", embtier_message(server->connection));
    return batch;
}

void bench_submit(struct embtier_batch *batch, enum embtier_op op)
{
    const enum embtier_err err = embtier_submit(batch, op);

    if (err != EMBTIER_OK)
        bench_die("submit: %s", embtier_err_text(err));
}

void bench_wait(struct embtier_batch *batch)
{
    const enum embtier_err err = embtier_wait(batch, UINT32_MAX);

    if (err != EMBTIER_OK)
        bench_die("wait: %s", embtier_err_text(err));
}

void bench_do(struct embtier_batch *batch, enum embtier_op op)
{
    bench_submit(batch, op);
    bench_wait(batch);
}

void bench_fill_rows(uint64_t *random, struct embtier_batch *batch, uint64_t elements)
{
    float *const rows = embtier_batch_rows(batch, 0);

    for (uint64_t i = 0; i < elements; i++)
        rows[i] = (float)((double)(bench_random(random) >> 40) * 0x1p-24 - 0.5);
}

void bench_touch_all(struct bench_server *server, enum embtier_op op)
{
    uint64_t random = 1;

    for (uint32_t t = 0; t < server->table_count; t++) {
        const uint32_t count = (uint32_t)MIN((uint64_t)TOUCH_ROWS, server->rows);
        const struct embtier_part part = { server->tables[t], count };
        struct embtier_batch *batches[2];
        uint32_t turn = 0;

        for (uint32_t i = 0; i < 2; i++) {
            batches[i] = bench_batch(server, &part, TOUCH_PARTS);
            bench_fill_rows(&random, batches[i], count * (uint64_t)server->dim);
        }
        for (uint64_t first = 0; first < server->rows; first += count, turn++) {
            struct embtier_batch *const batch = batches[turn % 2];

            if (turn >= 2)
                bench_wait(batch);
            for (uint32_t i = 0; i < count; i++)
                embtier_batch_ids(batch, 0)[i] = (first + i) % server->rows;
            bench_submit(batch, op);
        }
        for (uint32_t i = 0; i < MIN(turn, 2u); i++)
            bench_wait(batches[i]);
        for (uint32_t i = 0; i < 2; i++)
            if (embtier_batch_free(batches[i]) != EMBTIER_OK)
                bench_die("a batch is still in flight");
    }
}

double bench_metric(struct bench_server *server, const char *name, const char *label)
{
    struct embtier_status *status;
    double sum = 0;

    if (embtier_status(server->connection, &status) != EMBTIER_OK)
        bench_die("%s", embtier_message(server->connection));
    for (size_t i = 0; i < embtier_status_count(status); i++) {
        const struct embtier_metric *const metric = embtier_status_at(status, i);

        if (strcmp(metric->name, name) == 0 && (!label || strcmp(metric->label_value, label) == 0))
            sum += metric->value;
    }
    embtier_status_free(status);
    return sum;
}

double bench_server_processor_s(const struct bench_server *server)
{
    struct timespec used;
    clockid_t clock;

    if (clock_getcpuclockid(server->harness.pid, &clock) != 0 || clock_gettime(clock, &used) != 0)
        bench_die("cannot read the server's processor time");
    return (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
}

void bench_server_settle(struct bench_server *server)
{
    while (bench_metric(server, "store_pending_compaction_bytes", NULL) > 0 ||
           bench_metric(server, "store_compacting_shards", NULL) > 0)
        nanosleep(&(struct timespec){ .tv_nsec = 200000000L }, NULL);
}
