/* SPDX-License-Identifier: Apache-2.0 */
#include "store/members/data_directories.h"

#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "store/members/join_leave.h"
#include "store/store_impl.h"

static void add_shards(const struct store *store, const struct bucket_map *map,
                       struct data_directory *directory)
{
    struct store_stats stats = { 0 };

    for (uint32_t s = 0; s < map->shard_count; s++) {
        if (!bucket_map_has(map, s) || map->places[s] != directory->number)
            continue;
        directory->shards += map->bucket_counts[s] > 0;
        directory->buckets += map->bucket_counts[s];
        for (uint32_t kind = 0; kind < DATABASE_KINDS; kind++)
            if (store_database_of(store, s, kind == DATABASE_LOGGED))
                database_add_stats(store_database_of(store, s, kind == DATABASE_LOGGED), &stats);
    }
    directory->stored_bytes = stats.stored_bytes;
}

void data_directories_look(struct store *store, struct data_directories *ret_directories)
{
    struct store_view *const view = store_view_get(&store->views);
    struct data_directories found = { .shards_per_directory = store->shards_per_directory };

    for (uint32_t d = 0; d < store_identity_directory_count(store->identity); d++) {
        struct data_directory *const directory = &found.items[found.count];
        struct statvfs info;

        if (!store_identity_has(store->identity, d))
            continue;
        *directory = (struct data_directory){ .number = d, .device = store->devices[d] };
        directory->path = strdup(store_identity_directory(store->identity, d));
        if (!directory->path)
            continue;
        found.count++;
        add_shards(store, view->map, directory);
        if (statvfs(directory->path, &info) != 0)
            continue;
        directory->free_bytes = (uint64_t)info.f_bavail * info.f_frsize;
        directory->capacity_bytes = (uint64_t)info.f_blocks * info.f_frsize;
    }
    store_view_put(&store->views, view);
    *ret_directories = found;
}

void data_directories_clear(struct data_directories *directories)
{
    for (uint32_t i = 0; i < directories->count; i++)
        free(directories->items[i].path);
    directories->count = 0;
}

bool data_directories_have(const struct store *store, const char *path)
{
    return store_identity_find(store->identity, path) != DIRECTORY_NONE;
}
