/* SPDX-License-Identifier: Apache-2.0 */
#include "store/checkpoint/checkpoint_record.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/config_descriptors.h"
#include "store/buckets/bucket_map_file.h"
#include "store/files/durable_file.h"
#include "store/rocksdb/rocksdb_ext.h"

#define FORMAT_VERSION 2 /* the newest: it has a map of buckets */
#define FORMAT_NO_MAP  1
#define SUM_LINE       "crc32c %08" PRIx32 "\n"
#define SUM_LINE_CHARS 16

void checkpoint_record_free(struct checkpoint_record *record)
{
    if (!record)
        return;
    for (uint32_t i = 0; record->databases && i < record->database_count; i++)
        free(record->databases[i].files);
    free(record->databases);
    bucket_map_free(record->map);
    free(record);
}

const struct checkpoint_database *checkpoint_record_database(const struct checkpoint_record *record,
                                                             uint32_t shard, bool logged)
{
    for (uint32_t i = 0; i < record->database_count; i++)
        if (record->databases[i].shard == shard && record->databases[i].logged == logged)
            return &record->databases[i];
    return NULL;
}

bool checkpoint_record_has(const struct checkpoint_record *record, uint32_t shard)
{
    return record->map ? bucket_map_has(record->map, shard) : shard < record->shard_count;
}

bool checkpoint_record_has_rows(const struct checkpoint_record *record, uint32_t shard)
{
    return checkpoint_record_has(record, shard) &&
           (!record->map || record->map->bucket_counts[shard] > 0);
}

static const char *byte_order(void)
{
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? "little" : "big";
}

static uint32_t sum_text(const char *text)
{
    struct rocksdb_ext_sum *const sum = rocksdb_ext_sum_new();

    rocksdb_ext_sum_add(sum, text, strlen(text));
    return rocksdb_ext_sum_end(sum);
}

/* ---- Writing ---- */

static json_t *files_to_json(const struct checkpoint_database *database)
{
    json_t *const list = json_array();

    for (uint32_t i = 0; i < database->file_count; i++) {
        const struct checkpoint_file *const file = &database->files[i];

        if (json_array_append_new(list,
                                  json_pack("[s, I, I, b]", file->name, (json_int_t)file->bytes,
                                            (json_int_t)file->sum, (int)file->is_table)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *databases_to_json(const struct checkpoint_record *record)
{
    json_t *const list = json_array();

    for (uint32_t i = 0; i < record->database_count; i++) {
        const struct checkpoint_database *const database = &record->databases[i];

        if (json_array_append_new(list, json_pack("{s:I, s:b, s:I, s:o}", "shard",
                                                  (json_int_t)database->shard, "logged",
                                                  (int)database->logged, "sequence",
                                                  (json_int_t)database->sequence, "files",
                                                  files_to_json(database))) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static bool add_map(const struct bucket_map *map, json_t *root)
{
    _cleanup_(json_decrefp) json_t *json =
        json_pack("{s:I}", "generation", (json_int_t)map->generation);

    return json && bucket_map_to_json(map, json) && json_object_set(root, "map", json) == 0;
}

static json_t *record_to_json(const struct checkpoint_record *record)
{
    const struct checkpoint_info *const info = &record->info;
    json_t *const step = info->has_step ? json_integer((json_int_t)info->step) : json_null();
    json_t *root;

    root = json_pack(
        "{s:i, s:s, s:s, s:I, s:I, s:b, s:I, s:s, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I, "
        "s:I, s:I, s:I, "
        "s:I, s:I, s:o}",
        "format_version", record->map ? FORMAT_VERSION : FORMAT_NO_MAP, "byte_order", byte_order(),
        "store_uuid", record->store_uuid, "id", (json_int_t)info->id, "created_ms",
        (json_int_t)info->created_ms, "automatic", (int)info->automatic, "uid",
        (json_int_t)info->uid, "user", info->user, "step", step, "metadata", info->metadata,
        "table_count", (json_int_t)info->table_count, "bytes", (json_int_t)info->bytes, "new_bytes",
        (json_int_t)info->new_bytes, "pause_us", (json_int_t)info->pause_us, "tries",
        (json_int_t)info->tries, "cut_updates", (json_int_t)info->cut_updates, "held_rows",
        (json_int_t)info->held_rows, "spent_ms", (json_int_t)info->spent_ms, "shard_count",
        (json_int_t)record->shard_count, "catalog_sum", (json_int_t)record->catalog_sum,
        "catalog_bytes", (json_int_t)record->catalog_bytes, "databases", databases_to_json(record));
    if (root && record->map && !add_map(record->map, root)) {
        json_decref(root);
        return NULL;
    }
    return root;
}

enum embtier_err checkpoint_record_write(const struct checkpoint_record *record, const char *folder,
                                         struct err_msg *msg)
{
    _cleanup_(json_decrefp) json_t *root = record_to_json(record);
    _cleanup_(freep) char *json = root ? json_dumps(root, JSON_COMPACT) : NULL;
    _cleanup_(freep) char *text = NULL;

    if (!json || asprintf(&text, SUM_LINE "%s\n", sum_text(json), json) < 0)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", folder);
    if (strlen(text) > DURABLE_FILE_BYTES_MAX)
        return err_set(msg, EMBTIER_TOO_LARGE, "%s: the store has too many files for a checkpoint",
                       folder);
    return durable_file_write(folder, CHECKPOINT_RECORD_FILE, text, msg);
}

/* ---- Reading ---- */

static bool get_u64(const json_t *json, const char *key, uint64_t *ret_value)
{
    const json_t *const value = json_object_get(json, key);

    *ret_value = (uint64_t)json_integer_value(value);
    return json_is_integer(value);
}

static bool get_u32(const json_t *json, const char *key, uint32_t *ret_value)
{
    uint64_t value;
    const bool good = get_u64(json, key, &value) && value <= UINT32_MAX;

    *ret_value = (uint32_t)value;
    return good;
}

static bool get_bool(const json_t *json, const char *key, bool *ret_value)
{
    *ret_value = json_is_true(json_object_get(json, key));
    return json_is_boolean(json_object_get(json, key));
}

/* True if @name names a file in the folder itself, and no folder above. */
static bool is_file_name(const char *name)
{
    return name && name[0] != '\0' && name[0] != '.' && !strchr(name, '/') &&
           strlen(name) < sizeof(((struct checkpoint_file *)NULL)->name);
}

static bool has_suffix(const char *name, const char *suffix)
{
    const size_t length = strlen(name), suffix_length = strlen(suffix);

    return length > suffix_length && strcmp(name + length - suffix_length, suffix) == 0;
}

static bool file_from_json(const json_t *json, struct checkpoint_file *file)
{
    const char *const name = json_string_value(json_array_get(json, 0));
    const json_t *const bytes = json_array_get(json, 1);
    const json_t *const sum = json_array_get(json, 2);
    const json_t *const is_table = json_array_get(json, 3);

    if (!is_file_name(name) || !json_is_integer(bytes) || json_integer_value(bytes) < 0 ||
        !json_is_integer(sum) || !json_is_boolean(is_table))
        return false;
    memcpy(file->name, name, strlen(name) + 1);
    file->bytes = (uint64_t)json_integer_value(bytes);
    file->sum = (uint32_t)json_integer_value(sum);
    file->is_table = json_is_true(is_table);
    /* RocksDB appends to the others, so they must not be shared. */
    return !file->is_table || has_suffix(name, ".sst") || has_suffix(name, ".blob");
}

/* Returns CORRUPT without a message: the caller knows the file. */
static enum embtier_err database_from_json(const json_t *json, struct checkpoint_database *database)
{
    const json_t *const files = json_object_get(json, "files");

    if (!get_u32(json, "shard", &database->shard) || !get_bool(json, "logged", &database->logged) ||
        !get_u64(json, "sequence", &database->sequence) || !json_is_array(files))
        return EMBTIER_CORRUPT;
    database->files = calloc(json_array_size(files) + 1, sizeof(*database->files));
    if (!database->files)
        return EMBTIER_NO_MEMORY;
    database->file_count = (uint32_t)json_array_size(files);
    for (uint32_t i = 0; i < database->file_count; i++)
        if (!file_from_json(json_array_get(files, i), &database->files[i]))
            return EMBTIER_CORRUPT;
    return EMBTIER_OK;
}

static bool info_from_json(const json_t *json, struct checkpoint_info *info)
{
    const char *const metadata = json_string_value(json_object_get(json, "metadata"));
    const char *const user = json_string_value(json_object_get(json, "user"));

    if (!metadata || strlen(metadata) > EMBTIER_METADATA_MAX)
        return false;
    memcpy(info->metadata, metadata, strlen(metadata) + 1);
    if (user && strlen(user) <= CHECKPOINT_USER_MAX) /* older servers wrote none */
        memcpy(info->user, user, strlen(user) + 1);
    info->has_step = get_u64(json, "step", &info->step);
    (void)get_u64(json, "tries", &info->tries); /* older servers wrote neither */
    (void)get_u64(json, "cut_updates", &info->cut_updates);
    if (!get_u32(json, "uid", &info->uid)) /* older servers wrote none */
        info->uid = (uint32_t)geteuid();
    return get_u64(json, "id", &info->id) && get_u64(json, "created_ms", &info->created_ms) &&
           get_bool(json, "automatic", &info->automatic) &&
           get_u32(json, "table_count", &info->table_count) &&
           get_u64(json, "bytes", &info->bytes) && get_u64(json, "new_bytes", &info->new_bytes) &&
           get_u64(json, "pause_us", &info->pause_us) &&
           get_u64(json, "held_rows", &info->held_rows) &&
           get_u64(json, "spent_ms", &info->spent_ms);
}

/* Each shard that was there has both databases, once; no other shard has any. */
static bool has_all_databases(const struct checkpoint_record *record)
{
    bool has[BUCKET_MAP_SHARDS_MAX][CONFIG_DATABASES_PER_SHARD] = { { false } };

    for (uint32_t i = 0; i < record->database_count; i++) {
        const struct checkpoint_database *const database = &record->databases[i];

        if (!bucket_map_has(record->map, database->shard) || has[database->shard][database->logged])
            return false;
        has[database->shard][database->logged] = true;
    }
    return record->database_count == bucket_map_present(record->map) * CONFIG_DATABASES_PER_SHARD;
}

/* Reads the map of a record that has one. Returns CORRUPT without a message. */
static enum embtier_err map_from_json(const json_t *json, struct checkpoint_record *record)
{
    const json_t *const root = json_object_get(json, "map");
    struct bucket_map *const map = calloc(1, sizeof(*map));

    if (!map)
        return EMBTIER_NO_MEMORY;
    record->map = map;
    map->format = BUCKET_MAP_FORMAT_VERSION;
    if (!get_u64(root, "generation", &map->generation) || !bucket_map_from_json(root, map) ||
        map->shard_count != record->shard_count)
        return EMBTIER_CORRUPT;
    for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++)
        if (!bucket_map_has(map, map->shards[bucket]))
            return EMBTIER_CORRUPT;
    bucket_map_count(map);
    if (!has_all_databases(record))
        return EMBTIER_CORRUPT;
    for (uint32_t i = 0; i < record->database_count; i++)
        record->databases[i].place = map->places[record->databases[i].shard];
    return EMBTIER_OK;
}

static enum embtier_err record_from_json(const json_t *json, struct checkpoint_record *record)
{
    const char *const uuid = json_string_value(json_object_get(json, "store_uuid"));
    const json_t *const databases = json_object_get(json, "databases");

    if (!uuid || strlen(uuid) != STORE_UUID_CHARS || !json_is_array(databases) ||
        !info_from_json(json, &record->info) ||
        !get_u32(json, "shard_count", &record->shard_count) ||
        !get_u32(json, "catalog_sum", &record->catalog_sum) ||
        !get_u64(json, "catalog_bytes", &record->catalog_bytes))
        return EMBTIER_CORRUPT;
    memcpy(record->store_uuid, uuid, STORE_UUID_CHARS + 1);
    record->databases = calloc(json_array_size(databases) + 1, sizeof(*record->databases));
    if (!record->databases)
        return EMBTIER_NO_MEMORY;
    record->database_count = (uint32_t)json_array_size(databases);
    for (uint32_t i = 0; i < record->database_count; i++) {
        TRY(database_from_json(json_array_get(databases, i), &record->databases[i]));
        if (record->databases[i].shard >= record->shard_count)
            return EMBTIER_CORRUPT;
    }
    return EMBTIER_OK;
}

static enum embtier_err parse(const char *folder, const char *text,
                              struct checkpoint_record *record, struct err_msg *msg)
{
    const char *const path = CHECKPOINT_RECORD_FILE;
    _cleanup_(json_decrefp) json_t *root = NULL;
    char line[SUM_LINE_CHARS + 1];
    enum embtier_err err;
    const char *order;
    char *json;
    uint32_t version;

    if (strlen(text) <= SUM_LINE_CHARS || text[strlen(text) - 1] != '\n')
        return err_set(msg, EMBTIER_CORRUPT, "%s/%s: cut short", folder, path);
    json = strndup(text + SUM_LINE_CHARS, strlen(text) - SUM_LINE_CHARS - 1);
    if (!json)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", folder);
    snprintf(line, sizeof(line), SUM_LINE, sum_text(json));
    root = json_loads(json, JSON_REJECT_DUPLICATES, NULL);
    free(json);
    if (strncmp(text, line, SUM_LINE_CHARS) != 0 || !root ||
        !get_u32(root, "format_version", &version))
        return err_set(msg, EMBTIER_CORRUPT, "%s/%s: damaged", folder, path);
    if (version > FORMAT_VERSION)
        return err_set(msg, EMBTIER_VERSION,
                       "%s/%s: format version %" PRIu32 ", this program reads up to %d: a newer "
                       "embtierd made it: start that one",
                       folder, path, version, FORMAT_VERSION);
    order = json_string_value(json_object_get(root, "byte_order"));
    if (order && strcmp(order, byte_order()) != 0)
        return err_set(msg, EMBTIER_UNSUPPORTED,
                       "%s/%s: made on a %s-endian machine, this one is %s-endian", folder, path,
                       order, byte_order());
    err = order ? record_from_json(root, record) : EMBTIER_CORRUPT;
    if (err == EMBTIER_OK && version > FORMAT_NO_MAP)
        err = map_from_json(root, record);
    if (err != EMBTIER_OK)
        return err_set(msg, err, "%s/%s: %s", folder, path,
                       err == EMBTIER_NO_MEMORY ? "out of memory" : "no record of a checkpoint");
    return EMBTIER_OK;
}

enum embtier_err checkpoint_record_read(const char *folder, struct checkpoint_record **ret_record,
                                        struct err_msg *msg)
{
    _cleanup_(checkpoint_record_freep) struct checkpoint_record *record =
        calloc(1, sizeof(*record));
    _cleanup_(freep) char *text = NULL;

    if (!record)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", folder);
    TRY(durable_file_read(folder, CHECKPOINT_RECORD_FILE, &text, msg));
    TRY(parse(folder, text, record, msg));
    *ret_record = TAKE(record);
    return EMBTIER_OK;
}
