/* SPDX-License-Identifier: Apache-2.0 */
/* bucket_map_file.h: a map of buckets as JSON, in buckets.json and in the records of checkpoints.
 * Thread: any. */
#ifndef EMBTIER_STORE_BUCKETS_BUCKET_MAP_FILE_H
#define EMBTIER_STORE_BUCKETS_BUCKET_MAP_FILE_H

#include <jansson.h>

#include "store/buckets/bucket_map.h"

#define BUCKET_MAP_WAY_OUT                                                                         \
    "put this store's file back from a copy, or make a new store of a checkpoint, in other data "  \
    "directories, with --init --restore-from"

/* Adds the members of a map to @root, from shard_count on; of format 1 only those that this has.
 * False: out of memory. */
MUST_CHECK bool bucket_map_to_json(const struct bucket_map *map, json_t *root);
/* Reads these members, whose format is @map->format; the places of format 1 are not set. False if
 * they make no sense together, whatever the store is. */
MUST_CHECK bool bucket_map_from_json(const json_t *root, struct bucket_map *map);

/* Reads the copy at @file, whose checksum the caller has checked. @map is set only on OK. */
MUST_CHECK enum embtier_err bucket_map_parse(const char *file, const char *text, const char *uuid,
                                             struct bucket_map *map, struct err_msg *msg);

#endif
