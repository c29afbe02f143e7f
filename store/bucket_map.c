/* SPDX-License-Identifier: Apache-2.0 */
#include "store/bucket_map.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/log/log.h"
#include "base/paths.h"
#include "store/files/durable_file.h"
#include "store/files/summed_json.h"
#include "store/store_identity.h"

#define MAP_CHARS (BUCKET_MAP_DIGITS * ROW_BUCKETS)
#define WAY_OUT                                                                                    \
    "put this store's file back from a copy, or make a new store of a checkpoint, in other data "  \
    "directories, with --init --restore-from"

/* The copies of all directories. */
struct survey {
    uint32_t shard_count;
    struct bucket_map *newest; /* NULL: none is whole */
    uint32_t newest_directory;
    struct copy {
        uint64_t generation; /* 0: missing or damaged */
        struct err_msg why;  /* the reason, if it is 0 */
    } copies[CONFIG_DIRECTORIES_MAX];
};

static void survey_clear(struct survey *survey)
{
    bucket_map_free(survey->newest);
}

void bucket_map_free(struct bucket_map *map)
{
    free(map);
}

void bucket_map_balance(struct bucket_map *map, uint32_t shard_count)
{
    map->generation = 1;
    map->shard_count = shard_count;
    for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++)
        map->shards[bucket] = (uint16_t)(bucket % shard_count);
}

/* ---- One copy ---- */

static void digits_write(uint32_t number, char ret_digits[BUCKET_MAP_DIGITS])
{
    for (uint32_t i = BUCKET_MAP_DIGITS; i-- > 0; number >>= 4)
        ret_digits[i] = "0123456789abcdef"[number & 15];
}

/* All of @digits are hexadecimal. */
static uint32_t digits_read(const char *digits)
{
    uint32_t number = 0;

    for (uint32_t i = 0; i < BUCKET_MAP_DIGITS; i++)
        number =
            number << 4 | (uint32_t)(digits[i] <= '9' ? digits[i] - '0' : digits[i] - 'a' + 10);
    return number;
}

enum embtier_err bucket_map_write(const char *directory, const char *uuid,
                                  const struct bucket_map *map, struct err_msg *msg)
{
    _cleanup_(json_decrefp) json_t *root = NULL;
    _cleanup_(freep) char *digits = malloc(MAP_CHARS + 1);

    if (!digits)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s/" BUCKET_MAP_FILE ": out of memory", directory);
    for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++)
        digits_write(map->shards[bucket], digits + (size_t)bucket * BUCKET_MAP_DIGITS);
    digits[MAP_CHARS] = '\0';
    root = json_pack("{s:s, s:i, s:s, s:I, s:i, s:I, s:s}", SUMMED_JSON_KEY, SUMMED_JSON_NONE,
                     "format_version", BUCKET_MAP_FORMAT_VERSION, "store_uuid", uuid, "generation",
                     (json_int_t)map->generation, "bucket_count", ROW_BUCKETS, "shard_count",
                     (json_int_t)map->shard_count, "shards", digits);
    return summed_json_write(directory, BUCKET_MAP_FILE, root, msg);
}

/* Returns -1 if there is no number. */
static json_int_t number_of(const json_t *root, const char *key)
{
    const json_t *const json = json_object_get(root, key);

    return json_is_integer(json) ? json_integer_value(json) : -1;
}

/* The caller has checked the checksum of @text. @map stays untouched if it belongs to another
 * store. */
static enum embtier_err map_parse(const char *file, const char *text, const char *uuid,
                                  struct bucket_map *map, struct err_msg *msg)
{
    _cleanup_(json_decrefp) json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const json_int_t version = number_of(root, "format_version");
    const json_int_t shard_count = number_of(root, "shard_count");
    const char *const owner = json_string_value(json_object_get(root, "store_uuid"));
    const char *const digits = json_string_value(json_object_get(root, "shards"));

    if (version > BUCKET_MAP_FORMAT_VERSION)
        return store_other_format(file, version > UINT32_MAX ? UINT32_MAX : (uint32_t)version,
                                  BUCKET_MAP_FORMAT_VERSION, msg);
    if (owner && strcmp(owner, uuid) != 0)
        return err_set(msg, EMBTIER_MISMATCH,
                       "%s: belongs to store %s, but the data directories to store %s: " WAY_OUT,
                       file, owner, uuid);
    if (version != BUCKET_MAP_FORMAT_VERSION || !owner || number_of(root, "generation") < 1 ||
        number_of(root, "bucket_count") != ROW_BUCKETS || shard_count < 1 ||
        shard_count > CONFIG_SHARDS_MAX || !digits || strlen(digits) != MAP_CHARS ||
        strspn(digits, "0123456789abcdef") != MAP_CHARS)
        return err_set(msg, EMBTIER_CORRUPT, "%s: not a map of %d buckets: " WAY_OUT, file,
                       ROW_BUCKETS);
    map->generation = (uint64_t)number_of(root, "generation");
    map->shard_count = (uint32_t)shard_count;
    for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++)
        map->shards[bucket] = (uint16_t)digits_read(digits + (size_t)bucket * BUCKET_MAP_DIGITS);
    return EMBTIER_OK;
}

static enum embtier_err map_check(const char *file, const struct bucket_map *map,
                                  uint32_t shard_count, struct err_msg *msg)
{
    bool has_bucket[CONFIG_SHARDS_MAX] = { false };

    if (map->shard_count != shard_count)
        return err_set(msg, EMBTIER_MISMATCH,
                       "%s: made for %u shard%s, but embtier.json says %u: " WAY_OUT, file,
                       map->shard_count, PLURAL(map->shard_count), shard_count);
    for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++) {
        if (map->shards[bucket] >= shard_count)
            return err_set(msg, EMBTIER_CORRUPT,
                           "%s: bucket %u is in shard %u, but the store has %u shard%s: " WAY_OUT,
                           file, bucket, map->shards[bucket], shard_count, PLURAL(shard_count));
        has_bucket[map->shards[bucket]] = true;
    }
    for (uint32_t shard = 0; shard < shard_count; shard++)
        if (!has_bucket[shard])
            return err_set(msg, EMBTIER_CORRUPT, "%s: shard %u has no bucket: " WAY_OUT, file,
                           shard);
    return EMBTIER_OK;
}

/* Missing and damaged copies are OK, and *@ret_copy says so. Faults that copies in other
 * directories cannot mend are errors. */
static enum embtier_err copy_read(const char *directory, const char *uuid, uint32_t shard_count,
                                  struct bucket_map *map, struct copy *ret_copy,
                                  struct err_msg *msg)
{
    _cleanup_(freep) char *file = path_join(directory, BUCKET_MAP_FILE);
    _cleanup_(freep) char *text = NULL;
    enum embtier_err err;

    if (!file)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", directory);
    ret_copy->generation = 0;
    err = durable_file_read(directory, BUCKET_MAP_FILE, &text, &ret_copy->why);
    if (err == EMBTIER_OK)
        err = summed_json_check(file, text, true, &ret_copy->why);
    if (err == EMBTIER_NOT_FOUND)
        err_write(&ret_copy->why, "%s: missing", file);
    if (err == EMBTIER_NOT_FOUND || err == EMBTIER_CORRUPT)
        return EMBTIER_OK;
    if (err != EMBTIER_OK)
        return err_set(msg, err, "%s", ret_copy->why.text);
    TRY(map_parse(file, text, uuid, map, msg));
    TRY(map_check(file, map, shard_count, msg));
    ret_copy->generation = map->generation;
    return EMBTIER_OK;
}

/* ---- All copies ---- */

static enum embtier_err check_same(const struct store_identity *identity, uint32_t one,
                                   const struct bucket_map *ones, uint32_t other,
                                   const struct bucket_map *others, struct err_msg *msg)
{
    uint32_t bucket = 0;

    while (bucket < ROW_BUCKETS && ones->shards[bucket] == others->shards[bucket])
        bucket++;
    if (bucket == ROW_BUCKETS)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_CORRUPT,
                   "%s/" BUCKET_MAP_FILE " and that of %s: both of generation %" PRIu64
                   ", but bucket %u is in shard %u and in shard %u: " WAY_OUT,
                   store_identity_directory(identity, one),
                   store_identity_directory(identity, other), ones->generation, bucket,
                   ones->shards[bucket], others->shards[bucket]);
}

/* Takes *@map if it is newer than the newest so far. */
static enum embtier_err survey_add(struct survey *survey, const struct store_identity *identity,
                                   uint32_t directory, struct bucket_map **map, struct err_msg *msg)
{
    if (survey->newest && (*map)->generation == survey->newest->generation)
        return check_same(identity, survey->newest_directory, survey->newest, directory, *map, msg);
    if (survey->newest && (*map)->generation < survey->newest->generation)
        return EMBTIER_OK;
    bucket_map_free(survey->newest);
    survey->newest = TAKE(*map);
    survey->newest_directory = directory;
    return EMBTIER_OK;
}

static enum embtier_err survey_make(const struct store_identity *identity, struct survey *survey,
                                    struct err_msg *msg)
{
    const uint32_t directories = store_identity_directory_count(identity);

    for (uint32_t d = 0; d < directories; d++) {
        _cleanup_(bucket_map_freep) struct bucket_map *map = calloc(1, sizeof(*map));

        if (!map)
            return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
        TRY(copy_read(store_identity_directory(identity, d), store_identity_uuid(identity),
                      survey->shard_count, map, &survey->copies[d], msg));
        if (survey->copies[d].generation > 0)
            TRY(survey_add(survey, identity, d, &map, msg));
    }
    if (!survey->newest)
        return err_set(msg, EMBTIER_CORRUPT,
                       "%s; rows cannot be found without it, and no data directory has a whole "
                       "copy: " WAY_OUT,
                       survey->copies[0].why.text);
    return EMBTIER_OK;
}

static enum embtier_err survey_mend(const struct store_identity *identity,
                                    const struct survey *survey, struct err_msg *msg)
{
    const uint32_t directories = store_identity_directory_count(identity);

    for (uint32_t d = 0; d < directories; d++) {
        const struct copy *const copy = &survey->copies[d];
        const char *const directory = store_identity_directory(identity, d);

        if (copy->generation == survey->newest->generation)
            continue;
        TRY(bucket_map_write(directory, store_identity_uuid(identity), survey->newest, msg));
        log_warn("a copy of the map of buckets was damaged, missing or older: it has been replaced "
                 "with that of another data directory",
                 "directory=%s from=%s generation=%" PRIu64 " why=%s", LOG_QUOTED(directory),
                 LOG_QUOTED(store_identity_directory(identity, survey->newest_directory)),
                 survey->newest->generation,
                 LOG_QUOTED(copy->generation > 0 ? "older" : copy->why.text));
    }
    return EMBTIER_OK;
}

static enum embtier_err map_make(const struct store_identity *identity, uint32_t shard_count,
                                 struct bucket_map **ret_map, struct err_msg *msg)
{
    _cleanup_(bucket_map_freep) struct bucket_map *map = calloc(1, sizeof(*map));
    const uint32_t directories = store_identity_directory_count(identity);

    if (!map)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    bucket_map_balance(map, shard_count);
    for (uint32_t d = 0; d < directories; d++)
        TRY(bucket_map_write(store_identity_directory(identity, d), store_identity_uuid(identity),
                             map, msg));
    *ret_map = TAKE(map);
    return EMBTIER_OK;
}

enum embtier_err bucket_map_open(const struct store_identity *identity, uint32_t shard_count,
                                 struct bucket_map **ret_map, struct err_msg *msg)
{
    _cleanup_(survey_clear) struct survey survey = { .shard_count = shard_count };

    if (store_identity_is_making(identity))
        return map_make(identity, shard_count, ret_map, msg);
    TRY(survey_make(identity, &survey, msg));
    TRY(survey_mend(identity, &survey, msg));
    *ret_map = TAKE(survey.newest);
    return EMBTIER_OK;
}

enum embtier_err bucket_map_check(const struct store_identity *identity, uint32_t shard_count,
                                  struct err_msg *msg)
{
    _cleanup_(survey_clear) struct survey survey = { .shard_count = shard_count };

    return store_identity_is_making(identity) ? EMBTIER_OK : survey_make(identity, &survey, msg);
}
