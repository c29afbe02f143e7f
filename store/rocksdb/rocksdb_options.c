/* SPDX-License-Identifier: Apache-2.0 */
#include "store/rocksdb/rocksdb_options.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/text_escape.h"
#include "base/yaml/yaml_doc.h"
#include "store/rocksdb/rocksdb_ext.h"

#define TRY_NAME        "/try"
#define AS_OTHER_LEVELS "kDisableCompressionOption"

const struct rocksdb_option rocksdb_options_allowed[] = {
    /* The shape of the levels: how much is written again, and how often. Files are not so small
     * that descriptors run out. */
    { "target_file_size_base", 1 << 16, 4e9, "bytes of a table file of level 1" },
    { "target_file_size_multiplier", 1, 10,
      "factor by which the files of the next level are larger" },
    { "max_bytes_for_level_base", 1 << 18, 1e12, "bytes of level 1" },
    { "max_bytes_for_level_multiplier", 2, 100, "factor by which the next level is larger" },
    { "max_compaction_bytes", 0, 1e12, "most bytes that one compaction reads; 0: 25 files" },
    { "periodic_compaction_seconds", 0, 1e10,
      "age at which a file is compacted for its age alone" },
    { "compaction_pri", 0, 0, "which file of a level is compacted first" },
    /* Files. Rows hardly compress, keys do. */
    { "compression", 0, 0, "compression of table files" },
    { "bottommost_compression", 0, 0, "compression of the last level's files" },
    { "bytes_per_sync", 0, 1 << 30, "bytes of a table file after which its write-back begins" },
    /* No more than the budget counts for a compaction's input. */
    { "compaction_readahead_size", 0, 2 << 20, "bytes that a compaction reads ahead" },
    { "optimize_filters_for_hits", 0, 0, "the last level has no bloom filters" },
    /* For a damaged log that a person has to decide about; the start logs a warning. */
    { "wal_recovery_mode", 0, 0, "what a start does with a damaged log" },
};
const uint32_t rocksdb_options_allowed_count = ARRAY_LEN(rocksdb_options_allowed);

/* Reasons for refusals, where there is more to say than that the option is not on the list. */
static const struct {
    const char *name;
    const char *why;
} refused[] = {
    { "write_buffer_size", "set rocksdb.memtable_bytes instead" },
    { "db_write_buffer_size", "set rocksdb.memtable_bytes instead" },
    { "max_write_buffer_number", "set rocksdb.memtable_bytes instead" },
    { "min_write_buffer_number_to_merge", "above 1, flushes of several versions of RocksDB hang" },
    { "max_background_jobs", "set rocksdb.background_threads instead" },
    { "max_background_compactions", "set rocksdb.background_threads instead" },
    { "max_background_flushes", "set rocksdb.background_threads instead" },
    { "max_subcompactions", "it would start threads while the server runs" },
    { "use_direct_reads", "set rocksdb.direct_io instead" },
    { "use_direct_io_for_flush_and_compaction", "set rocksdb.direct_io instead" },
    { "max_open_files", "the server itself limits how many table files are open" },
    { "block_based_table_factory", "the memory budget depends on blocks, their cache and filters" },
    { "table_factory", "the store supports block-based tables only" },
    { "plain_table_factory", "the store supports block-based tables only" },
    { "compaction_style", "set rocksdb.layout instead" },
    { "enable_blob_files", "set rocksdb.layout instead" },
    { "disable_auto_compactions", "the server itself decides which shards compact" },
    { "level0_file_num_compaction_trigger", "set rocksdb.compaction_trigger_files instead" },
    { "level0_slowdown_writes_trigger", "the server itself holds updates, at a limit of its own" },
    { "level0_stop_writes_trigger", "the server itself holds updates, at a limit of its own" },
};

/* ---- Names ---- */

struct naming {
    const struct config *config;
    struct err_msg *msg;
    uint32_t named; /* bit per row of rocksdb_options_allowed */
    enum embtier_err err;
};
_Static_assert(ARRAY_LEN(rocksdb_options_allowed) <= 32, "bits of that");

static const struct rocksdb_option *find_allowed(const char *name)
{
    for (uint32_t i = 0; i < rocksdb_options_allowed_count; i++)
        if (strcmp(rocksdb_options_allowed[i].name, name) == 0)
            return &rocksdb_options_allowed[i];
    return NULL;
}

static const char *why_not(const char *name)
{
    for (uint32_t i = 0; i < ARRAY_LEN(refused); i++)
        if (strcmp(refused[i].name, name) == 0)
            return refused[i].why;
    return "it could break the server's guarantees";
}

static enum embtier_err mistake(const struct config *config, struct err_msg *msg, const char *text)
{
    return yaml_doc_mistake(config->doc, "rocksdb.options", msg, "%s", text);
}

static bool check_name(void *context, const char *name, const char *value)
{
    struct naming *const naming = context;
    const struct rocksdb_option *const option = find_allowed(name);

    (void)value;
    if (option) {
        naming->named |= UINT32_C(1) << (option - rocksdb_options_allowed);
        return true;
    }
    naming->err = yaml_doc_mistake(naming->config->doc, "rocksdb.options", naming->msg,
                                   "`%s` cannot be set: %s; allowed: the options that "
                                   "embtierd.yaml(5) lists",
                                   TEXT_SHOWN(name), why_not(name));
    return false;
}

/* Refuses the mode that goes on behind damage: it serves rows older than those acknowledged. */
static bool check_recovery(struct naming *naming, const char *value)
{
    if (strcmp(value, "kSkipAnyCorruptedRecords") != 0)
        return true;
    naming->err = mistake(
        naming->config, naming->msg,
        "`wal_recovery_mode` is `kSkipAnyCorruptedRecords`, which loses updates silently; allowed: "
        "kTolerateCorruptedTailRecords, kPointInTimeRecovery, kAbsoluteConsistency");
    return false;
}

/* RocksDB opens a database with most compressions that it knows but cannot write; later it fails,
 * or ends the process. Only bottommost_compression may name no compression: it is then as the other
 * levels. */
static bool check_compression(struct naming *naming, const char *name, const char *value)
{
    const bool bottommost = strcmp(name, "bottommost_compression") == 0;
    struct err_msg list = { { 0 } };
    const char *can;

    if (bottommost && strcmp(value, AS_OTHER_LEVELS) == 0)
        return true;
    for (size_t i = 0; (can = rocksdb_ext_compression(i)); i++) {
        const size_t used = strlen(list.text);

        if (strcmp(value, can) == 0)
            return true;
        snprintf(list.text + used, sizeof(list.text) - used, "%s%s", i > 0 ? ", " : "", can);
    }
    naming->err =
        yaml_doc_mistake(naming->config->doc, "rocksdb.options", naming->msg,
                         "`%s` is %s, which this RocksDB cannot write; allowed: %s%s", name,
                         TEXT_SHOWN(value), list.text, bottommost ? ", " AS_OTHER_LEVELS : "");
    return false;
}

/* Checks a value as RocksDB has understood it. */
static bool check_value(void *context, const char *name, const char *value)
{
    struct naming *const naming = context;
    const struct rocksdb_option *const option = find_allowed(name);
    double number;

    if (strcmp(name, "wal_recovery_mode") == 0)
        return check_recovery(naming, value);
    if (strcmp(name, "compression") == 0 || strcmp(name, "bottommost_compression") == 0)
        return check_compression(naming, name, value);
    /* Options that the user has not named have RocksDB's values, such as the 2^64 - 2 of
     * periodic_compaction_seconds. */
    if (!option || option->most == 0 || !(naming->named >> (option - rocksdb_options_allowed) & 1))
        return true;
    number = strtod(value, NULL);
    if (number >= option->least && number <= option->most)
        return true;
    naming->err = yaml_doc_mistake(naming->config->doc, "rocksdb.options", naming->msg,
                                   "`%s` (%s) is %s; allowed: %.0f to %.0f", name, option->what,
                                   TEXT_SHOWN(value), option->least, option->most);
    return false;
}

enum embtier_err rocksdb_options_apply(rocksdb_options_t **options, const struct config *config,
                                       struct err_msg *msg)
{
    const char *const text = config->rocksdb.options;
    struct naming naming = { .config = config, .msg = msg };
    rocksdb_options_t *changed;
    char *error = NULL;

    if (!text)
        return EMBTIER_OK;
    if (!rocksdb_ext_parse_options(text, check_name, &naming))
        return mistake(config, msg,
                       "is not a list of options; allowed: NAME=VALUE, with `;` between them");
    TRY(naming.err);
    changed = rocksdb_options_create();
    rocksdb_get_options_from_string(*options, text, changed, &error);
    if (error) {
        naming.err = mistake(config, msg, error);
        rocksdb_free(error);
        rocksdb_options_destroy(changed);
        return naming.err;
    }
    rocksdb_options_destroy(*options);
    *options = changed;
    if (!rocksdb_ext_each_option(changed, check_value, &naming))
        return mistake(config, msg, "RocksDB does not report the options that it has understood");
    return naming.err;
}

/* ---- A try ---- */

static enum embtier_err tried(const struct config *config, char *error, struct err_msg *msg)
{
    enum embtier_err err;

    if (!error)
        return EMBTIER_OK;
    err = mistake(config, msg, error);
    rocksdb_free(error);
    return err;
}

static enum embtier_err write_and_read(rocksdb_t *db, const struct config *config,
                                       struct err_msg *msg)
{
    static const char key[12] = "key of a row";
    rocksdb_writeoptions_t *const write = rocksdb_writeoptions_create();
    rocksdb_flushoptions_t *const flush = rocksdb_flushoptions_create();
    rocksdb_readoptions_t *const read = rocksdb_readoptions_create();
    size_t bytes = 0;
    char *error = NULL;
    char *found = NULL;

    rocksdb_put(db, write, key, sizeof(key), "row", 3, &error);
    if (!error)
        rocksdb_flush(db, flush, &error);
    if (!error)
        found = rocksdb_get(db, read, key, sizeof(key), &bytes, &error);
    rocksdb_free(found);
    rocksdb_readoptions_destroy(read);
    rocksdb_flushoptions_destroy(flush);
    rocksdb_writeoptions_destroy(write);
    TRY(tried(config, error, msg));
    return bytes == 3 ? EMBTIER_OK : mistake(config, msg, "a written row is not found");
}

enum embtier_err rocksdb_options_try(const rocksdb_options_t *options, const struct config *config,
                                     struct err_msg *msg)
{
    rocksdb_options_t *const mine =
        rocksdb_options_create_copy((rocksdb_options_t *)(uintptr_t)options);
    rocksdb_env_t *const memory = rocksdb_create_mem_env();
    char *error = NULL;
    rocksdb_t *db;
    enum embtier_err err;

    rocksdb_options_set_env(mine, memory);
    rocksdb_ext_unlimit_compaction(mine); /* files in memory call it by an old function */
    rocksdb_options_set_create_if_missing(mine, 1);
    rocksdb_ext_log_nowhere(mine);
    db = rocksdb_open(mine, TRY_NAME, &error);
    err = tried(config, error, msg);
    if (err == EMBTIER_OK) {
        err = write_and_read(db, config, msg);
        rocksdb_close(db);
    }
    rocksdb_options_destroy(mine);
    rocksdb_env_destroy(memory);
    return err;
}
