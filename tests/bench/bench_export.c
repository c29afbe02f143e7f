/* SPDX-License-Identifier: Apache-2.0 */
/* bench_export.c: the rates of reading a checkpoint's table, and of writing it to files.
 *
 * scan: rows a second of embtier_scan_next(), in order of ids, through a client's memory. The
 * reference is RocksDB's iterators in this process over the same databases, one after the other.
 * They look at each key and value and copy none: the most that the files can give. An export
 * reads like this; this figure has the bar of 0.7.
 *
 * export, export-npy: rows a second of embtier_export(), weights and ids, until they are on
 * disk, compared with the same iterators. These have no bar. They read as scan does and write as
 * many bytes again, while the reference writes none, so the figures depend on the disk. */
#include <rocksdb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/lib/bench_server.h"

#define DIM             64
#define ROW_COUNT       1000000
#define SHARDS          8
#define READAHEAD_BYTES ((size_t)(2 * MIB))

struct exports {
    struct bench_server server;
    uint64_t rows;
    uint64_t checkpoint;
    rocksdb_options_t *options;
    rocksdb_readoptions_t *read;
    rocksdb_t *shards[SHARDS];
    bool npy;
    uint64_t sum; /* so that the compiler cannot leave out the reads */
};

static void must(const struct exports *exports, enum embtier_err err)
{
    if (err != EMBTIER_OK)
        bench_die("%s", embtier_message(exports->server.connection));
}

/* Stores every row of the only table, past the cache. */
static void load(struct exports *exports)
{
    struct embtier_table_options options = EMBTIER_TABLE_OPTIONS_INIT;
    struct embtier_load *load = NULL;
    struct embtier_load_buffer buffer;

    options.name = "t";
    options.rows = exports->rows;
    options.dim = DIM;
    must(exports, embtier_load_open(exports->server.connection, &options, 0, 0, &load));
    buffer = embtier_load_buffer(load);
    for (uint64_t done = 0; done < exports->rows;) {
        const uint32_t count = (uint32_t)MIN(exports->rows - done, (uint64_t)buffer.capacity);

        for (uint32_t i = 0; i < count; i++) {
            buffer.ids[i] = done + i;
            for (uint32_t d = 0; d < DIM; d++)
                ((float *)buffer.rows)[(size_t)i * DIM + d] = (float)(done + i);
        }
        must(exports, embtier_load_rows(load, count));
        done += count;
    }
    must(exports, embtier_load_end(load, NULL, NULL));
    embtier_load_close(load);
}

static void make_checkpoint(struct exports *exports)
{
    struct embtier_checkpoint_list *list = NULL;

    must(exports, embtier_checkpoint_create(exports->server.connection, NULL, NULL, NULL, &list));
    exports->checkpoint = embtier_checkpoint_list_at(list, 0)->id;
    embtier_checkpoint_list_free(list);
}

static void open_shards(struct exports *exports)
{
    exports->options = rocksdb_options_create();
    exports->read = rocksdb_readoptions_create();
    rocksdb_readoptions_set_readahead_size(exports->read, READAHEAD_BYTES);
    rocksdb_readoptions_set_fill_cache(exports->read, false);
    for (uint32_t s = 0; s < SHARDS; s++) {
        char *error = NULL;
        char path[256], log[256];

        snprintf(path, sizeof(path), "%s/rows/checkpoints/%06llu/shard-%04u/replay",
                 exports->server.harness.directory, (unsigned long long)exports->checkpoint, s);
        snprintf(log, sizeof(log), "%s/log-%u", exports->server.harness.directory, s);
        rocksdb_options_set_db_log_dir(exports->options, log);
        exports->shards[s] = rocksdb_open_for_read_only(exports->options, path, false, &error);
        if (error)
            bench_die("%s", error);
    }
}

static double iterators(void *context)
{
    struct exports *const exports = context;
    const double begin = bench_now();
    uint64_t rows = 0;

    for (uint32_t s = 0; s < SHARDS; s++) {
        rocksdb_iterator_t *const at = rocksdb_create_iterator(exports->shards[s], exports->read);

        for (rocksdb_iter_seek_to_first(at); rocksdb_iter_valid(at); rocksdb_iter_next(at)) {
            size_t key_bytes, value_bytes;

            exports->sum += (uint8_t)rocksdb_iter_key(at, &key_bytes)[0];
            exports->sum += (uint8_t)rocksdb_iter_value(at, &value_bytes)[0];
            rows++;
        }
        rocksdb_iter_destroy(at);
    }
    if (rows != exports->rows)
        bench_die("%llu rows of %llu", (unsigned long long)rows, (unsigned long long)exports->rows);
    return (double)rows / (bench_now() - begin);
}

static double scan(void *context)
{
    struct exports *const exports = context;
    const struct embtier_scan_options options = { .struct_bytes = sizeof(options),
                                                  .checkpoint = exports->checkpoint };
    struct embtier_scan_rows rows = { 0 };
    struct embtier_scan *scan = NULL;
    const double begin = bench_now();
    uint64_t count = 0;

    must(exports, embtier_scan_open(exports->server.connection, "t", &options, &scan));
    do {
        must(exports, embtier_scan_next(scan, &rows));
        count += rows.count;
    } while (rows.count > 0);
    embtier_scan_close(scan);
    if (count != exports->rows)
        bench_die("%llu rows of %llu", (unsigned long long)count,
                  (unsigned long long)exports->rows);
    return (double)count / (bench_now() - begin);
}

static double export(void *context)
{
    struct exports *const exports = context;
    const struct embtier_export_options options = { .struct_bytes = sizeof(options),
                                                    .checkpoint = exports->checkpoint,
                                                    .npy = exports->npy };
    struct embtier_exported exported = { 0 };
    char path[128], command[160];
    double begin, spent;

    snprintf(path, sizeof(path), "%s/export", exports->server.harness.directory);
    snprintf(command, sizeof(command), "rm -rf '%s'", path);
    begin = bench_now();
    must(exports,
         embtier_export(exports->server.connection, "t", path, &options, NULL, NULL, &exported));
    spent = bench_now() - begin;
    if (system(command) != 0) // NOLINT(concurrency-mt-unsafe, cert-env33-c)
        bench_die("%s", command);
    return (double)exported.rows / spent;
}

static void run(const struct bench_figure *figure, bench_side *side, bool npy)
{
    struct exports *const exports = bench_alloc(1, sizeof(*exports));

    exports->rows = bench_scaled(ROW_COUNT, 10000);
    exports->npy = npy;
    bench_server_start(&exports->server,
                       &(struct bench_server_shape){ .shards = SHARDS, .dram_bytes = 16 * MIB });
    load(exports);
    bench_server_settle(&exports->server);
    make_checkpoint(exports);
    open_shards(exports);
    bench_compare(figure, side, iterators, exports, NULL);
    for (uint32_t s = 0; s < SHARDS; s++)
        rocksdb_close(exports->shards[s]);
    rocksdb_readoptions_destroy(exports->read);
    rocksdb_options_destroy(exports->options);
    bench_server_done(&exports->server);
    free(exports);
}

#define FIGURE(figure_name, least)                                                                 \
    {                                                                                              \
        .name = (figure_name), .unit = "rows/s", .bar = (least),                                   \
        .limit = "memory bandwidth, and the disk's",                                               \
        .reference_name = "RocksDB's iterators in process",                                        \
        .reference_options = "the checkpoint's 8 databases one after the other, 2 MiB ahead"       \
    }

/* Only this figure has a bar; see the head of the file. */
static void run_scan(void)
{
    static const struct bench_figure figure = FIGURE("scan", 0.7);

    run(&figure, scan, false);
}

static void run_export(void)
{
    static const struct bench_figure figure = FIGURE("export", 0);

    run(&figure, export, false);
}

static void run_export_npy(void)
{
    static const struct bench_figure figure = FIGURE("export-npy", 0);

    run(&figure, export, true);
}

int main(int argc, char **argv)
{
    const struct bench_entry entries[] = {
        { "scan", run_scan },
        { "export", run_export },
        { "export-npy", run_export_npy },
    };

    return bench_main(argc, argv, entries, ARRAY_LEN(entries));
}
