/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/lib/rocksdb_alone.h"
#include "config/config_load.h"
#include "daemon/budget/budget.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/database/row_format.h"
#include "tests/bench/lib/bench.h"

static void must(enum embtier_err err, const struct err_msg *msg)
{
    if (err != EMBTIER_OK)
        bench_die("%s", msg->text);
}

static void open_shard(struct rocksdb_alone *alone, const struct rocksdb_alone_opts *opts,
                       uint32_t shard)
{
    static const char *const names[] = { "default" };
    const rocksdb_options_t *const options[] = { alone->options };
    char *error = NULL;
    char path[256];

    snprintf(path, sizeof(path), "%s/shard-%04u/%s", opts->rows, shard,
             opts->logged ? "logged" : "replay");
    alone->shards[shard] =
        opts->writes
            ? rocksdb_open_column_families(alone->options, path, 1, names, options,
                                           &alone->families[shard], &error)
            : rocksdb_open_for_read_only_column_families(alone->options, path, 1, names, options,
                                                         &alone->families[shard], 0, &error);
    if (error)
        bench_die("%s", error);
}

void rocksdb_alone_open(struct rocksdb_alone *alone, const struct rocksdb_alone_opts *opts)
{
    struct err_msg msg = { { 0 } };
    char path[256];

    *alone = (struct rocksdb_alone){ .shard_count = opts->shard_count,
                                     .table_id = opts->table_id,
                                     .row_bytes = opts->row_bytes };
    snprintf(path, sizeof(path), "%s/embtierd.yaml", opts->harness->directory);
    must(config_load(path, budget_unbudgeted, &alone->config, &msg), &msg);
    free(alone->config->data.directories[0]);
    alone->config->data.directories[0] = strdup(opts->rows);
    alone->config->rocksdb.io_uring = SWITCH_OFF; /* RocksDB's own default */
    must(store_identity_open(alone->config, &alone->identity, &msg), &msg);
    must(bucket_map_open(alone->identity, opts->shard_count, &alone->map, &msg), &msg);
    row_hasher_init(&alone->hasher, store_identity_hash_key(alone->identity));
    must(rocksdb_setup_new(alone->config, opts->shard_count, &alone->setup, &msg), &msg);
    alone->options = rocksdb_options_create_copy(alone->setup->options);
    rocksdb_options_set_use_direct_reads(alone->options, 1);
    rocksdb_options_set_use_direct_io_for_flush_and_compaction(alone->options, 1);
    rocksdb_options_set_disable_auto_compactions(alone->options, 0);
    rocksdb_options_set_max_write_buffer_number(alone->options, DATABASE_WRITE_BUFFERS);
    if (opts->cache_bytes) { /* a cache that keeps data blocks too */
        alone->cache = rocksdb_cache_create_lru(opts->cache_bytes);
        rocksdb_table_options_apply(alone->options, alone->cache, alone->config);
    }
    alone->write = rocksdb_writeoptions_create();
    rocksdb_writeoptions_disable_WAL(alone->write, !opts->logged);
    rocksdb_writeoptions_set_sync(alone->write, opts->logged);
    for (uint32_t s = 0; s < opts->shard_count; s++)
        open_shard(alone, opts, s);
}

void rocksdb_alone_close(struct rocksdb_alone *alone)
{
    for (uint32_t s = 0; s < alone->shard_count; s++) {
        rocksdb_column_family_handle_destroy(alone->families[s]);
        rocksdb_close(alone->shards[s]);
    }
    rocksdb_writeoptions_destroy(alone->write);
    rocksdb_options_destroy(alone->options);
    if (alone->cache)
        rocksdb_cache_destroy(alone->cache);
    rocksdb_setup_free(alone->setup);
    bucket_map_free(alone->map);
    store_identity_free(alone->identity);
    config_free(alone->config);
}

static int compare_ids(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

void rocksdb_alone_sort(const struct rocksdb_alone *alone, const uint64_t *ids, uint32_t count,
                        struct rocksdb_alone_batch *batch)
{
    memset(batch->counts, 0, sizeof(batch->counts));
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t shard =
            alone->map->shards[row_bucket(row_hash(&alone->hasher, alone->table_id, ids[i]))];

        batch->ids[shard][batch->counts[shard]++] = ids[i];
    }
    for (uint32_t s = 0; s < alone->shard_count; s++)
        qsort(batch->ids[s], batch->counts[s], sizeof(batch->ids[s][0]), compare_ids);
}

static void get_of_shard(const struct rocksdb_alone *alone, uint32_t shard, const uint64_t *ids,
                         uint32_t count, char *rows)
{
    static __thread struct row_key keys[ALONE_BATCH_ROWS];
    static __thread const char *key_list[ALONE_BATCH_ROWS];
    static __thread size_t key_bytes[ALONE_BATCH_ROWS];
    static __thread rocksdb_pinnableslice_t *values[ALONE_BATCH_ROWS];
    static __thread char *errors[ALONE_BATCH_ROWS];

    for (uint32_t i = 0; i < count; i++) {
        keys[i] = row_key_make(alone->table_id, ids[i]);
        key_list[i] = (const char *)keys[i].bytes;
        key_bytes[i] = ROW_KEY_BYTES;
    }
    rocksdb_batched_multi_get_cf(alone->shards[shard], alone->setup->read, alone->families[shard],
                                 count, key_list, key_bytes, values, errors, true);
    for (uint32_t i = 0; i < count; i++) {
        size_t bytes;
        const char *value;

        if (errors[i] || !values[i])
            bench_die("the reference does not find row %llu", (unsigned long long)ids[i]);
        value = rocksdb_pinnableslice_value(values[i], &bytes);
        memcpy(rows + (uint64_t)i * alone->row_bytes, value + sizeof(struct stored_row_head),
               alone->row_bytes);
        rocksdb_pinnableslice_destroy(values[i]);
    }
}

void rocksdb_alone_get(struct rocksdb_alone *alone, const struct rocksdb_alone_batch *batch,
                       char *rows)
{
    rocksdb_perfcontext_t *const counts = rocksdb_perfcontext_create(); /* counts of this thread */

    rocksdb_set_perf_level(rocksdb_enable_count);
    rocksdb_perfcontext_reset(counts);
    for (uint32_t s = 0; s < alone->shard_count; s++) {
        get_of_shard(alone, s, batch->ids[s], batch->counts[s], rows);
        rows += (uint64_t)batch->counts[s] * alone->row_bytes;
        alone->got_rows += batch->counts[s];
    }
    alone->read_blocks += rocksdb_perfcontext_metric(counts, rocksdb_block_read_count);
    rocksdb_perfcontext_destroy(counts);
}

void rocksdb_alone_set(const struct rocksdb_alone *alone, const struct rocksdb_alone_batch *batch,
                       const char *rows)
{
    for (uint32_t s = 0; s < alone->shard_count; s++) {
        rocksdb_writebatch_t *const write = rocksdb_writebatch_create();
        char *error = NULL;

        for (uint32_t i = 0; i < batch->counts[s]; i++, rows += alone->row_bytes) {
            const struct row_key key = row_key_make(alone->table_id, batch->ids[s][i]);
            const struct stored_row_head head = stored_row_head_make(alone->row_bytes, 0);
            const char *const key_parts[] = { (const char *)key.bytes };
            const size_t key_part_bytes[] = { sizeof(key) };
            const char *const value_parts[] = { (const char *)&head, rows };
            const size_t value_part_bytes[] = { sizeof(head), alone->row_bytes };

            rocksdb_writebatch_putv(write, 1, key_parts, key_part_bytes, 2, value_parts,
                                    value_part_bytes);
        }
        rocksdb_write(alone->shards[s], alone->write, write, &error);
        rocksdb_writebatch_destroy(write);
        if (error)
            bench_die("%s", error);
    }
}
