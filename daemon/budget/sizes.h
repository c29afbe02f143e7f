/* SPDX-License-Identifier: Apache-2.0 */
/* sizes.h: the memory and SSD that a configuration and its tables take, worked out without a
 * server.
 *
 * Numbers come from the headers that the server itself is built with: the format of table files,
 * the shape of arrays, the lengths of the cache's slots, and the parts' reserved memory
 * (daemon/budget/). All rows of a table are taken to be written; rows that nobody updates are not
 * on SSD. Thread: any. */
#ifndef EMBTIER_DAEMON_BUDGET_SIZES_H
#define EMBTIER_DAEMON_BUDGET_SIZES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/spec/table_spec.h"
#include "base/spec/tier_spec.h"
#include "config/config.h"
#include "store/rocksdb/table_size.h"

#define SIZE_NO_TIER SIZE_MAX

struct size_table {
    struct table_spec spec; /* given by the caller; rows are bounded */
    uint32_t row_bytes;     /* weights and state */
    size_t tier;            /* of an array; SIZE_NO_TIER: the cache, or no tier has room */
    uint64_t array_bytes;   /* of its array; 0: its home is the cache, or it is too long for one */
    uint64_t cached_bytes;  /* slots of all rows, if the cache held them; 0: it is an array */
    struct table_size ssd;  /* all shards together, compacted */
};

struct sizes {
    const struct config *config; /* borrowed, as the tables are */
    struct size_table *tables;
    size_t table_count;
    struct {
        uint64_t needed_bytes; /* by arrays of tables */
        bool is_memory;        /* the machine's, and no file */
    } tiers[TIERS_MAX];
    struct {
        uint64_t capacity_bytes; /* tiers without their memory for arrays */
        uint64_t needed_bytes;   /* to hold all rows of tables in the cache */
    } cache;
    struct {
        uint64_t tier_bytes;      /* of tiers in memory */
        uint64_t request_bytes;   /* requests, tickets, write queue */
        uint64_t lane_bytes;      /* more that lanes reserve at the start */
        uint64_t program_bytes;   /* program, libraries, databases */
        uint64_t start_bytes;     /* the sum of these: resident once the server is ready */
        uint64_t memtable_bytes;  /* write buffers in use, with rows of all tables */
        uint64_t metadata_bytes;  /* index and filter blocks of all tables, or their cache's size */
        uint64_t lane_heap_bytes; /* of lanes that read and evict rows; 0: the cache holds all */
        uint64_t loaded_bytes;    /* all of these: resident once all rows were written */
        uint64_t session_bytes;   /* of each client, without its arena */
        uint64_t arena_bytes;     /* the most that all clients' arenas may have */
        uint64_t most_bytes;      /* the sum of all budgets and limits */
    } memory;
    struct {
        uint64_t row_bytes;      /* rows of all tables, with keys, indexes and filters */
        uint64_t database_bytes; /* files of databases and directories beside rows */
        uint64_t reserve_bytes;  /* of all directories */
        uint64_t bytes;          /* the sum: once all rows are written and compacted */
        uint64_t working_bytes;  /* more while clients update rows and shards compact */
    } ssd;
};

/* Borrows @config and @tables, whose specs are set. */
void sizes_make(const struct config *config, struct size_table *tables, size_t table_count,
                struct sizes *ret_sizes);

/* Why the machine or the configuration is too small; a line each. */
struct size_lack {
    char text[512];
};
/* Calls @found for each. @free_bytes: of the data directories; UINT64_MAX: not known. */
typedef void size_lack_fn(void *context, const struct size_lack *lack);
void sizes_check(const struct sizes *sizes, uint64_t free_bytes, size_lack_fn *found,
                 void *context);

#endif
