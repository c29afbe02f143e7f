/* SPDX-License-Identifier: Apache-2.0 */
/* data_directories.h: the data directories of an open store, as users see them. Thread: one that
 * may wait for SSD. */
#ifndef EMBTIER_STORE_MEMBERS_DATA_DIRECTORIES_H
#define EMBTIER_STORE_MEMBERS_DATA_DIRECTORIES_H

#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"

struct store;

struct data_directory {
    uint32_t number;
    char *path;
    uint32_t shards; /* that have buckets */
    uint32_t buckets;
    uint64_t stored_bytes;
    uint64_t free_bytes, capacity_bytes; /* of its file system; 0: unknown */
    uint32_t device;                     /* the same for all on one file system */
};

struct data_directories {
    uint32_t count;
    uint32_t shards_per_directory; /* as the store was made */
    struct data_directory items[CONFIG_DIRECTORIES_MAX];
};

/* Those that memory lacks for are left out. */
void data_directories_look(struct store *store, struct data_directories *ret_directories);
/* True if @path leads to one of them, by whatever name. */
bool data_directories_have(const struct store *store, const char *path);
void data_directories_clear(struct data_directories *directories);

#endif
