/* SPDX-License-Identifier: Apache-2.0 */
#include "store/buckets/bucket_map_file.h"

#include <stdlib.h>
#include <string.h>

#include "store/files/summed_json.h"
#include "store/store_identity.h"

#define MAP_CHARS (BUCKET_MAP_DIGITS * ROW_BUCKETS)

/* ---- Writing ---- */

static void digits_write(uint32_t number, char ret_digits[BUCKET_MAP_DIGITS])
{
    for (uint32_t i = BUCKET_MAP_DIGITS; i-- > 0; number >>= 4)
        ret_digits[i] = "0123456789abcdef"[number & 15];
}

static json_t *shards_to_json(const struct bucket_map *map)
{
    _cleanup_(freep) char *digits = malloc(MAP_CHARS + 1);

    if (!digits)
        return NULL;
    for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++)
        digits_write(map->shards[bucket], digits + (size_t)bucket * BUCKET_MAP_DIGITS);
    digits[MAP_CHARS] = '\0';
    return json_string(digits);
}

static json_t *places_to_json(const struct bucket_map *map)
{
    json_t *const list = json_array();

    for (uint32_t s = 0; s < map->shard_count; s++)
        if (json_array_append_new(
                list, json_integer(bucket_map_has(map, s) ? map->places[s] : -1)) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *strays_to_json(const struct bucket_map *map)
{
    json_t *const list = json_array();

    for (uint32_t s = 0; s < map->shard_count; s++)
        if (map->strays[s] && json_array_append_new(list, json_integer(s)) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

bool bucket_map_to_json(const struct bucket_map *map, json_t *root)
{
    if (json_object_set_new(root, "shard_count", json_integer(map->shard_count)) != 0 ||
        json_object_set_new(root, "shards", shards_to_json(map)) != 0)
        return false;
    if (map->format == BUCKET_MAP_FORMAT_FIXED)
        return true;
    return json_object_set_new(root, "places", places_to_json(map)) == 0 &&
           json_object_set_new(root, "strays", strays_to_json(map)) == 0 &&
           json_object_set_new(root, "checkpoint_from",
                               json_integer((json_int_t)map->checkpoint_from)) == 0;
}

enum embtier_err bucket_map_write(const char *directory, const char *uuid,
                                  const struct bucket_map *map, struct err_msg *msg)
{
    _cleanup_(json_decrefp) json_t *root =
        json_pack("{s:s, s:I, s:s, s:I, s:i}", SUMMED_JSON_KEY, SUMMED_JSON_NONE, "format_version",
                  (json_int_t)map->format, "store_uuid", uuid, "generation",
                  (json_int_t)map->generation, "bucket_count", ROW_BUCKETS);

    if (!root || !bucket_map_to_json(map, root))
        return err_set(msg, EMBTIER_NO_MEMORY, "%s/" BUCKET_MAP_FILE ": out of memory", directory);
    return summed_json_write(directory, BUCKET_MAP_FILE, root, msg);
}

/* ---- Reading ---- */

/* All of @digits are hexadecimal. */
static uint32_t digits_read(const char *digits)
{
    uint32_t number = 0;

    for (uint32_t i = 0; i < BUCKET_MAP_DIGITS; i++)
        number =
            number << 4 | (uint32_t)(digits[i] <= '9' ? digits[i] - '0' : digits[i] - 'a' + 10);
    return number;
}

/* Returns -1 if there is no number. */
static json_int_t number_of(const json_t *root, const char *key)
{
    const json_t *const json = json_object_get(root, key);

    return json_is_integer(json) ? json_integer_value(json) : -1;
}

static bool shards_from_json(const json_t *root, struct bucket_map *map)
{
    const char *const digits = json_string_value(json_object_get(root, "shards"));

    if (!digits || strlen(digits) != MAP_CHARS || strspn(digits, "0123456789abcdef") != MAP_CHARS)
        return false;
    for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++)
        map->shards[bucket] = (uint16_t)digits_read(digits + (size_t)bucket * BUCKET_MAP_DIGITS);
    return true;
}

static bool places_from_json(const json_t *root, struct bucket_map *map)
{
    const json_t *const places = json_object_get(root, "places");

    if (!json_is_array(places) || json_array_size(places) != map->shard_count)
        return false;
    for (uint32_t s = 0; s < map->shard_count; s++) {
        const json_t *const place = json_array_get(places, s);

        if (!json_is_integer(place) || json_integer_value(place) < -1 ||
            json_integer_value(place) >= CONFIG_DIRECTORIES_MAX)
            return false;
        map->places[s] =
            json_integer_value(place) < 0 ? BUCKET_MAP_GONE : (uint8_t)json_integer_value(place);
    }
    return true;
}

static bool strays_from_json(const json_t *root, struct bucket_map *map)
{
    const json_t *const strays = json_object_get(root, "strays");

    if (!json_is_array(strays))
        return false;
    for (size_t i = 0; i < json_array_size(strays); i++) {
        const json_t *const shard = json_array_get(strays, i);

        if (!json_is_integer(shard) || json_integer_value(shard) < 0 ||
            json_integer_value(shard) >= map->shard_count)
            return false;
        map->strays[json_integer_value(shard)] = true;
    }
    return true;
}

bool bucket_map_from_json(const json_t *root, struct bucket_map *map)
{
    const bool is_fixed = map->format == BUCKET_MAP_FORMAT_FIXED;
    const json_int_t shard_count = number_of(root, "shard_count");
    const json_int_t from = number_of(root, "checkpoint_from");

    if (shard_count < 1 || shard_count > (is_fixed ? CONFIG_SHARDS_MAX : BUCKET_MAP_SHARDS_MAX))
        return false;
    map->shard_count = (uint32_t)shard_count;
    if (!shards_from_json(root, map))
        return false;
    if (is_fixed)
        return true;
    map->checkpoint_from = (uint64_t)from;
    return from >= 0 && places_from_json(root, map) && strays_from_json(root, map);
}

enum embtier_err bucket_map_parse(const char *file, const char *text, const char *uuid,
                                  struct bucket_map *map, struct err_msg *msg)
{
    _cleanup_(json_decrefp) json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    _cleanup_(bucket_map_freep) struct bucket_map *read = calloc(1, sizeof(*read));
    const json_int_t version = number_of(root, "format_version");
    const char *const owner = json_string_value(json_object_get(root, "store_uuid"));

    if (!read)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", file);
    if (version > BUCKET_MAP_FORMAT_VERSION)
        return store_other_format(file, version > UINT32_MAX ? UINT32_MAX : (uint32_t)version,
                                  BUCKET_MAP_FORMAT_VERSION, msg);
    if (owner && strcmp(owner, uuid) != 0)
        return err_set(msg, EMBTIER_MISMATCH,
                       "%s: belongs to store %s, but the data directories to store "
                       "%s: " BUCKET_MAP_WAY_OUT,
                       file, owner, uuid);
    read->format = (uint32_t)version;
    read->generation = (uint64_t)number_of(root, "generation");
    if (version < BUCKET_MAP_FORMAT_FIXED || !owner || number_of(root, "generation") < 1 ||
        number_of(root, "bucket_count") != ROW_BUCKETS || !bucket_map_from_json(root, read))
        return err_set(msg, EMBTIER_CORRUPT, "%s: not a map of %d buckets: " BUCKET_MAP_WAY_OUT,
                       file, ROW_BUCKETS);
    *map = *read;
    return EMBTIER_OK;
}
