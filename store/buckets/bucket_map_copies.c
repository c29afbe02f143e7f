/* SPDX-License-Identifier: Apache-2.0 */
#include "store/buckets/bucket_map.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/log/log.h"
#include "base/paths.h"
#include "store/buckets/bucket_map_file.h"
#include "store/files/durable_file.h"
#include "store/files/summed_json.h"
#include "store/members/members.h"
#include "store/store_identity.h"

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

/* ---- One copy ---- */

/* @shard_count: as the store was made. */
static enum embtier_err check_fixed(const char *file, const struct bucket_map *map,
                                    uint32_t shard_count, struct err_msg *msg)
{
    if (map->shard_count != shard_count)
        return err_set(msg, EMBTIER_MISMATCH,
                       "%s: made for %u shard%s, but embtier.json says %u: " BUCKET_MAP_WAY_OUT,
                       file, map->shard_count, PLURAL(map->shard_count), shard_count);
    for (uint32_t shard = 0; shard < shard_count; shard++)
        if (map->bucket_counts[shard] == 0)
            return err_set(msg, EMBTIER_CORRUPT, "%s: shard %u has no bucket: " BUCKET_MAP_WAY_OUT,
                           file, shard);
    return EMBTIER_OK;
}

static enum embtier_err check_moved(const char *file, const struct bucket_map *map,
                                    uint32_t shard_count, const struct store_identity *identity,
                                    struct err_msg *msg)
{
    if (map->shard_count < shard_count)
        return err_set(msg, EMBTIER_MISMATCH,
                       "%s: has %u shard%s, but embtier.json says %u: " BUCKET_MAP_WAY_OUT, file,
                       map->shard_count, PLURAL(map->shard_count), shard_count);
    if (bucket_map_present(map) > CONFIG_SHARDS_MAX)
        return err_set(msg, EMBTIER_MISMATCH, "%s: has %u shards, allowed: %d: " BUCKET_MAP_WAY_OUT,
                       file, bucket_map_present(map), CONFIG_SHARDS_MAX);
    for (uint32_t shard = 0; shard < map->shard_count; shard++) {
        if (bucket_map_has(map, shard) && !store_identity_has(identity, map->places[shard]) &&
            map->places[shard] != store_identity_left_out(identity))
            return err_set(msg, EMBTIER_MISMATCH,
                           "%s: shard %u lies in data directory %u, which the store does not "
                           "have: " BUCKET_MAP_WAY_OUT,
                           file, shard, map->places[shard]);
        if (!bucket_map_has(map, shard) && map->bucket_counts[shard] > 0)
            return err_set(msg, EMBTIER_CORRUPT,
                           "%s: shard %u is gone, but has buckets: " BUCKET_MAP_WAY_OUT, file,
                           shard);
    }
    return EMBTIER_OK;
}

/* Any copy counts: one that is older may be all that a crash left of a move. */
static enum embtier_err check_left_out(const char *file, const struct bucket_map *map,
                                       const struct store_identity *identity, struct err_msg *msg)
{
    const uint32_t left_out = store_identity_left_out(identity);
    uint32_t buckets = 0;

    for (uint32_t shard = 0; shard < map->shard_count; shard++)
        if (bucket_map_has(map, shard) && map->places[shard] == left_out)
            buckets += map->bucket_counts[shard];
    if (left_out == MEMBERS_NONE || buckets == 0)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_MISMATCH,
                   "--without-directory: data directory %u has rows, %u of %d buckets by %s: mount "
                   "its drive and start without the option. If the drive is lost, make a new store "
                   "of a checkpoint (--init --restore-from)",
                   left_out, buckets, ROW_BUCKETS, file);
}

static enum embtier_err map_check(const char *file, struct bucket_map *map, uint32_t shard_count,
                                  const struct store_identity *identity, struct err_msg *msg)
{
    for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++)
        if (map->shards[bucket] >= map->shard_count)
            return err_set(
                msg, EMBTIER_CORRUPT,
                "%s: bucket %u is in shard %u, but the store has %u shard%s: " BUCKET_MAP_WAY_OUT,
                file, bucket, map->shards[bucket], map->shard_count, PLURAL(map->shard_count));
    bucket_map_count(map);
    if (map->format != BUCKET_MAP_FORMAT_FIXED) {
        TRY(check_moved(file, map, shard_count, identity, msg));
    } else {
        TRY(check_fixed(file, map, shard_count, msg));
        bucket_map_place(map, MAX(shard_count / store_identity_made_count(identity), 1u));
    }
    return check_left_out(file, map, identity, msg);
}

/* Missing and damaged copies are OK, and *@ret_copy says so. Faults that copies in other
 * directories cannot mend are errors. */
static enum embtier_err copy_read(const struct store_identity *identity, uint32_t index,
                                  uint32_t shard_count, struct bucket_map *map,
                                  struct copy *ret_copy, struct err_msg *msg)
{
    const char *const directory = store_identity_directory(identity, index);
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
    TRY(bucket_map_parse(file, text, store_identity_uuid(identity), map, msg));
    TRY(map_check(file, map, shard_count, identity, msg));
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
    if (bucket == ROW_BUCKETS && memcmp(ones, others, sizeof(*ones)) == 0)
        return EMBTIER_OK;
    if (bucket == ROW_BUCKETS)
        return err_set(msg, EMBTIER_CORRUPT,
                       "%s/" BUCKET_MAP_FILE " and that of %s: both of generation %" PRIu64
                       ", but they differ in more than shards: " BUCKET_MAP_WAY_OUT,
                       store_identity_directory(identity, one),
                       store_identity_directory(identity, other), ones->generation);
    return err_set(msg, EMBTIER_CORRUPT,
                   "%s/" BUCKET_MAP_FILE " and that of %s: both of generation %" PRIu64
                   ", but bucket %u is in shard %u and in shard %u: " BUCKET_MAP_WAY_OUT,
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

/* A change is written to the first directory before all others. So its copy is the newest of all,
 * also of those that are missing, unless it was damaged or put back. */
static enum embtier_err survey_check_first(const struct store_identity *identity,
                                           const struct survey *survey, struct err_msg *msg)
{
    if (store_identity_left_out(identity) == MEMBERS_NONE ||
        survey->copies[0].generation == survey->newest->generation)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_MISMATCH,
                   "--without-directory: %s/" BUCKET_MAP_FILE " is not the newest whole copy of "
                   "the map of buckets, so the missing directory may have a newer one, and rows: "
                   "mount its drive and start without the option",
                   store_identity_directory(identity, 0));
}

static enum embtier_err survey_make(const struct store_identity *identity, struct survey *survey,
                                    struct err_msg *msg)
{
    const uint32_t directories = store_identity_directory_count(identity);

    for (uint32_t d = 0; d < directories; d++) {
        _cleanup_(bucket_map_freep) struct bucket_map *map = calloc(1, sizeof(*map));

        if (!map)
            return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
        if (!store_identity_has(identity, d))
            continue;
        TRY(copy_read(identity, d, survey->shard_count, map, &survey->copies[d], msg));
        if (survey->copies[d].generation > 0)
            TRY(survey_add(survey, identity, d, &map, msg));
    }
    if (!survey->newest)
        return err_set(msg, EMBTIER_CORRUPT,
                       "%s; rows cannot be found without it, and no data directory has a whole "
                       "copy: " BUCKET_MAP_WAY_OUT,
                       survey->copies[0].why.text);
    return survey_check_first(identity, survey, msg);
}

static enum embtier_err survey_mend(const struct store_identity *identity,
                                    const struct survey *survey, struct err_msg *msg)
{
    const uint32_t directories = store_identity_directory_count(identity);

    for (uint32_t d = 0; d < directories; d++) {
        const struct copy *const copy = &survey->copies[d];
        const char *const directory = store_identity_directory(identity, d);

        if (!store_identity_has(identity, d) || copy->generation == survey->newest->generation)
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

enum embtier_err bucket_map_write_all(const struct store_identity *identity,
                                      const struct bucket_map *map, struct err_msg *msg)
{
    for (uint32_t d = 0; d < store_identity_directory_count(identity); d++)
        if (store_identity_has(identity, d))
            TRY(bucket_map_write(store_identity_directory(identity, d),
                                 store_identity_uuid(identity), map, msg));
    return EMBTIER_OK;
}

enum embtier_err bucket_map_change(const struct store_identity *identity,
                                   const struct bucket_map *now, struct bucket_map *map,
                                   uint64_t *generation, bool *ret_unknown, struct err_msg *msg)
{
    _cleanup_(bucket_map_freep) struct bucket_map *undone = bucket_map_copy(now);
    enum embtier_err err;

    *ret_unknown = false;
    if (!undone)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    map->generation = ++*generation;
    err = bucket_map_write_all(identity, map, msg);
    if (err == EMBTIER_OK)
        return EMBTIER_OK;
    undone->generation = ++*generation;
    *ret_unknown = bucket_map_write_all(identity, undone, NULL) != EMBTIER_OK;
    return err;
}

static enum embtier_err map_make(const struct store_identity *identity, uint32_t shard_count,
                                 struct bucket_map **ret_map, struct err_msg *msg)
{
    _cleanup_(bucket_map_freep) struct bucket_map *map = calloc(1, sizeof(*map));
    const uint32_t directories = store_identity_made_count(identity);

    if (!map)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    bucket_map_balance(map, shard_count);
    bucket_map_place(map, MAX(shard_count / directories, 1u));
    TRY(bucket_map_write_all(identity, map, msg));
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
