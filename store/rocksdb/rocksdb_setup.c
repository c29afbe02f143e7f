/* SPDX-License-Identifier: Apache-2.0 */
#include "store/rocksdb/rocksdb_setup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log/log.h"
#include "base/text/bytes.h"
#include "base/yaml/yaml_doc.h"
#include "config/config_descriptors.h"
#include "store/files/durable_file.h"
#include "store/rocksdb/rocksdb_ext.h"
#include "store/rocksdb/rocksdb_layout.h"
#include "store/rocksdb/rocksdb_options.h"
#include "store/rocksdb/table_size.h"

#define PROBE_FILE  "embtier.json" DURABLE_FILE_SUFFIX /* a new store ignores this name */
#define PROBE_BYTES 4096

#define WRITE_BUFFERS_NO_LIMIT 1000
#define PENDING_BYTES_NO_LIMIT (UINT64_C(1) << 60)
#define MANIFEST_BYTES_MAX     (64 * MIB)
#define MANIFEST_AHEAD_BYTES   (64 * KIB) /* allocated ahead; RocksDB's 4 MiB fill a full disk */
#define OPEN_FILES_PART        32 /* least files in a part of RocksDB's table of open files */

_Static_assert(STORE_DATABASES_PER_SHARD == CONFIG_DATABASES_PER_SHARD &&
                   DATABASE_LEVEL0_FILES_MAX < CONFIG_COMPACTION_INPUTS &&
                   CONFIG_TRIGGER_FILES_MAX < DATABASE_PENDING_FILES,
               "the configuration counts what they take of memory");

static enum embtier_err direct_io_try(int fd, bool *ret_direct)
{
    void *block = NULL;

    *ret_direct = false;
    if (posix_memalign(&block, PROBE_BYTES, PROBE_BYTES) != 0)
        return EMBTIER_NO_MEMORY;
    memset(block, 0, PROBE_BYTES);
    *ret_direct = pwrite(fd, block, PROBE_BYTES, 0) == PROBE_BYTES &&
                  pread(fd, block, PROBE_BYTES, 0) == PROBE_BYTES;
    free(block);
    return EMBTIER_OK;
}

enum embtier_err direct_io_probe(const char *directory, enum config_switch wanted, bool *ret_direct,
                                 struct err_msg *msg)
{
    _cleanup_(freep) char *path = path_join(directory, PROBE_FILE);
    _cleanup_(closep) int fd = -1;
    bool direct = false;
    enum embtier_err err = EMBTIER_OK;

    if (!path)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", directory);
    if (wanted != SWITCH_OFF) {
        fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0600);
        if (fd >= 0)
            err = direct_io_try(fd, &direct);
        unlink(path);
    }
    if (err != EMBTIER_OK)
        return err_set(msg, err, "%s: %s", directory, err_text(err));
    if (wanted == SWITCH_ON && !direct)
        return err_set(msg, EMBTIER_UNSUPPORTED,
                       "%s: this file system cannot do direct I/O, which rocksdb.direct_io: on "
                       "requires; allowed here: auto, off",
                       directory);
    *ret_direct = direct;
    return EMBTIER_OK;
}

void rocksdb_table_options_apply(rocksdb_options_t *options, rocksdb_cache_t *cache,
                                 const struct config *config)
{
    rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();

    rocksdb_block_based_options_set_block_size(table, TABLE_BLOCK_BYTES);
    rocksdb_block_based_options_set_format_version(table, TABLE_FORMAT_VERSION);
    rocksdb_block_based_options_set_block_cache(table, cache);
    rocksdb_block_based_options_set_cache_index_and_filter_blocks(table, 1);
    rocksdb_block_based_options_set_cache_index_and_filter_blocks_with_high_priority(table, 1);
    /* Partitions of one block each: if they outgrow their cache, a lookup needs one more block, and
     * not a whole file's filter. */
    rocksdb_block_based_options_set_index_type(
        table, rocksdb_block_based_table_index_type_two_level_index_search);
    rocksdb_block_based_options_set_partition_filters(table, 1);
    rocksdb_block_based_options_set_metadata_block_size(table, TABLE_BLOCK_BYTES);
    rocksdb_block_based_options_set_pin_top_level_index_and_filter(table, 1);
    rocksdb_block_based_options_set_whole_key_filtering(table, 1);
    if (config->rocksdb.bloom_bits_per_key > 0) /* the table options take ownership */
        rocksdb_block_based_options_set_filter_policy(
            table, rocksdb_filterpolicy_create_bloom_full(config->rocksdb.bloom_bits_per_key));
    rocksdb_options_set_block_based_table_factory(options, table);
    rocksdb_block_based_options_destroy(table);
}

enum embtier_err rocksdb_buffer_bytes(const struct config *config, uint32_t shard_count,
                                      uint64_t *ret_bytes, struct err_msg *msg)
{
    const uint64_t buffers =
        (uint64_t)shard_count * STORE_DATABASES_PER_SHARD * DATABASE_WRITE_BUFFERS;
    const uint64_t total = config->rocksdb.memtable_bytes;

    if (total / buffers < WRITE_BUFFER_BYTES_MIN)
        return yaml_doc_mistake(config->doc, "rocksdb.memtable_bytes", msg,
                                "%s is too little for %u shard%s; allowed: at least %s",
                                BYTES_TEXT(total), shard_count, PLURAL(shard_count),
                                BYTES_TEXT(buffers * WRITE_BUFFER_BYTES_MIN));
    *ret_bytes = MIN(total / buffers, WRITE_BUFFER_BYTES_MAX);
    return EMBTIER_OK;
}

static enum embtier_err write_buffers_apply(rocksdb_options_t *options, const struct config *config,
                                            uint32_t shard_count, struct err_msg *msg)
{
    uint64_t bytes = 0;

    TRY(rocksdb_buffer_bytes(config, shard_count, &bytes, msg));
    rocksdb_ext_share_write_buffers(options, config->rocksdb.memtable_bytes);
    rocksdb_options_set_write_buffer_size(options, bytes);
    return EMBTIER_OK;
}

static void compaction_apply(rocksdb_options_t *options, uint32_t trigger_files)
{
    rocksdb_options_set_level_compaction_dynamic_level_bytes(options, 1);
    rocksdb_options_set_level0_file_num_compaction_trigger(options, (int)trigger_files);
    /* Writes never wait, so slowing them down would be the same as stopping them. */
    rocksdb_options_set_level0_slowdown_writes_trigger(options, DATABASE_LEVEL0_FILES_MAX);
    rocksdb_options_set_level0_stop_writes_trigger(options, DATABASE_LEVEL0_FILES_MAX);
    /* RocksDB would stop writes for its estimate alone (database_debt_stops_writes()). */
    rocksdb_options_set_soft_pending_compaction_bytes_limit(options, PENDING_BYTES_NO_LIMIT);
    rocksdb_options_set_hard_pending_compaction_bytes_limit(options, PENDING_BYTES_NO_LIMIT);
}

static void quiet_apply(rocksdb_options_t *options)
{
    rocksdb_options_set_stats_dump_period_sec(options, 0);
    rocksdb_options_set_stats_persist_period_sec(options, 0);
    rocksdb_options_set_max_manifest_file_size(options, MANIFEST_BYTES_MAX);
    rocksdb_options_set_manifest_preallocation_size(options, MANIFEST_AHEAD_BYTES);
}

/* Applies an option string of our own. */
static enum embtier_err text_apply(struct rocksdb_setup *setup, const char *text,
                                   struct err_msg *msg)
{
    rocksdb_options_t *changed = rocksdb_options_create();
    char *error = NULL;

    rocksdb_get_options_from_string(setup->options, text, changed, &error);
    if (error) {
        err_set(msg, EMBTIER_CONFIG, "RocksDB refuses the store's options: %s", error);
        rocksdb_free(error);
        rocksdb_options_destroy(changed);
        return EMBTIER_CONFIG;
    }
    rocksdb_options_destroy(setup->options);
    setup->options = changed;
    return EMBTIER_OK;
}

static enum embtier_err file_system_apply(struct rocksdb_setup *setup, enum config_switch wanted,
                                          struct err_msg *msg)
{
    setup->io_uring = wanted != SWITCH_OFF && rocksdb_ext_io_uring_works();
    if (wanted == SWITCH_ON && !setup->io_uring)
        return err_set(msg, EMBTIER_UNSUPPORTED,
                       "the kernel does not let this process use io_uring, which rocksdb.io_uring: "
                       "on requires; allowed here: auto, off");
    rocksdb_ext_use_file_system(setup->options, setup->io_uring);
    return EMBTIER_OK;
}

enum embtier_err rocksdb_setup_threads(struct rocksdb_setup *setup, uint32_t threads,
                                       int *ret_compacting, struct err_msg *msg)
{
    const int flushing = (int)MAX(threads / 4, 1u);
    const int compacting = (int)MAX(threads, 2u) - flushing;

    if (!rocksdb_ext_start_threads(setup->env, flushing, compacting))
        return err_set(msg, EMBTIER_BUSY, "the system does not let RocksDB start another thread");
    *ret_compacting = compacting;
    return EMBTIER_OK;
}

uint32_t rocksdb_threads(const struct rocksdb_setup *setup)
{
    return (uint32_t)(rocksdb_env_get_high_priority_background_threads(setup->env) +
                      rocksdb_env_get_background_threads(setup->env));
}

static enum embtier_err threads_apply(struct rocksdb_setup *setup, uint32_t threads,
                                      struct err_msg *msg)
{
    int compacting = 0;

    setup->env = rocksdb_create_default_env();
    TRY(rocksdb_setup_threads(setup, threads, &compacting, msg));
    rocksdb_options_set_env(setup->options, setup->env);
    /* One flush of a shard at a time: RocksDB 7.8 may take back the newer of two when the older
     * fails. */
    rocksdb_options_set_max_background_flushes(setup->options, 1);
    rocksdb_options_set_max_background_compactions(setup->options, compacting);
    return EMBTIER_OK;
}

/* Descriptors are a budget: a database with too many open table files closes those unused for
 * longest. Their index and filter blocks stay in the cache. RocksDB counts ten more files for
 * itself, and spreads the others over 64 parts; few files need fewer parts. */
static void open_files_apply(rocksdb_options_t *options, uint32_t table_files)
{
    int bits = 6;

    rocksdb_options_set_max_open_files(options, table_files > 0 ? (int)table_files + 10 : -1);
    while (table_files > 0 && bits > 0 && table_files >> bits < OPEN_FILES_PART)
        bits--;
    rocksdb_options_set_table_cache_numshardbits(options, bits);
}

static rocksdb_writeoptions_t *write_options(bool logged, bool synced, bool never_waits)
{
    rocksdb_writeoptions_t *const options = rocksdb_writeoptions_create();

    rocksdb_writeoptions_disable_WAL(options, !logged);
    rocksdb_writeoptions_set_sync(options, synced);
    rocksdb_writeoptions_set_no_slowdown(options, never_waits);
    return options;
}

enum embtier_err rocksdb_setup_new(const struct config *config, uint32_t shard_count,
                                   struct rocksdb_setup **ret_setup, struct err_msg *msg)
{
    _cleanup_(rocksdb_setup_freep) struct rocksdb_setup *setup = calloc(1, sizeof(*setup));

    if (!setup)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    if (!rocksdb_ext_fits())
        return err_set(msg, EMBTIER_UNSUPPORTED,
                       "the installed librocksdb is not the one embtier was built for");
    if (!rocksdb_ext_is_tried(rocksdb_ext_version()))
        log_warn("embtier's tests have not run with this version of RocksDB", "version=%s",
                 rocksdb_ext_version());
    setup->options = rocksdb_options_create();
    setup->metadata_cache = rocksdb_ext_metadata_cache_new(config->rocksdb.metadata_cache_bytes);
    rocksdb_ext_enable_statistics(setup->options);
    rocksdb_ext_sum_files(setup->options);
    rocksdb_options_set_compression(setup->options, rocksdb_no_compression);
    rocksdb_options_set_max_file_opening_threads(setup->options, ROCKSDB_OPENING_THREADS);
    rocksdb_table_options_apply(setup->options, setup->metadata_cache, config);
    TRY(write_buffers_apply(setup->options, config, shard_count, msg));
    compaction_apply(setup->options, config->rocksdb.compaction_trigger_files);
    rocksdb_layout_apply(setup->options, config->rocksdb.layout);
    quiet_apply(setup->options);
    TRY(threads_apply(setup, config->rocksdb.background_threads, msg));
    /* Replaces the env by one that uses the same threads. */
    TRY(file_system_apply(setup, config->rocksdb.io_uring, msg));
    rocksdb_ext_note_tables(setup->options);
    rocksdb_ext_limit_compaction(setup->options);
    rocksdb_options_set_wal_recovery_mode(setup->options,
                                          rocksdb_tolerate_corrupted_tail_records_recovery);
    TRY(rocksdb_options_apply(&setup->options, config, msg));
    /* The store's promises depend on the options that follow the user's. These make RocksDB notice
     * a log that is missing as a whole. */
    TRY(text_apply(setup,
                   "track_and_verify_wals_in_manifest=true;manual_wal_flush=false;"
                   "wal_bytes_per_sync=0;recycle_log_file_num=0;avoid_flush_during_recovery=false",
                   msg));
    rocksdb_options_set_wal_dir(setup->options, "");
    open_files_apply(setup->options, config->descriptors.table_files);
    /* database_write() counts write buffers itself. Where RocksDB stops writes, it also refuses
     * flushes that do not wait; those that wait may wait for ever on a failing disk. */
    rocksdb_options_set_max_write_buffer_number(setup->options, WRITE_BUFFERS_NO_LIMIT);
    rocksdb_options_set_min_write_buffer_number_to_merge(setup->options, 1);
    rocksdb_options_set_disable_auto_compactions(setup->options, 1);
    rocksdb_options_set_paranoid_checks(setup->options, 1);

    setup->read = rocksdb_readoptions_create();
    rocksdb_readoptions_set_verify_checksums(setup->read, 1);
    setup->write = write_options(false, false, true);
    setup->log = write_options(true, false, true);
    setup->log_patient = write_options(true, false, false);
    *ret_setup = TAKE(setup);
    return EMBTIER_OK;
}

void rocksdb_setup_free(struct rocksdb_setup *setup)
{
    if (!setup)
        return;
    if (setup->log_patient)
        rocksdb_writeoptions_destroy(setup->log_patient);
    if (setup->log)
        rocksdb_writeoptions_destroy(setup->log);
    if (setup->write)
        rocksdb_writeoptions_destroy(setup->write);
    if (setup->read)
        rocksdb_readoptions_destroy(setup->read);
    if (setup->options)
        rocksdb_options_destroy(setup->options);
    if (setup->metadata_cache)
        rocksdb_cache_destroy(setup->metadata_cache);
    if (setup->env)
        rocksdb_env_destroy(setup->env);
    free(setup);
}
