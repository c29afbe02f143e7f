/* SPDX-License-Identifier: Apache-2.0 */
/* config.h: the configuration of embtierd, read from its file and checked.
 *
 * The file is YAML, read by libcyaml. Every key has a default, so a missing file is a valid
 * configuration. Keys contain their unit (`_bytes`, `_ms`); a number of bytes may be written
 * `192GiB`. A mistake is reported in one line with file, line, key, the fault and the allowed
 * values. One table (config_keys.h) lists the keys; the man page is made from it.
 *
 * Thread: any; a loaded config never changes. */
#ifndef EMBTIER_CONFIG_CONFIG_H
#define EMBTIER_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/log/log.h"
#include "base/net/address.h"
#include "base/spec/tier_spec.h"
#include "config/machine.h"

struct yaml_doc;

#define CONFIG_DIRECTORIES_MAX 64
#define CONFIG_LISTEN_MAX      8
#define CONFIG_SHARDS_MAX      1024 /* of all directories together */
#define CONFIG_LANES_MAX       64
#define CONFIG_READERS_MAX     64 /* of a lane */
/* Files of level 0 that may gather before a compaction: few enough that a shard is due long before
 * it is urgent. */
#define CONFIG_TRIGGER_FILES_MAX 16

enum config_switch { SWITCH_AUTO, SWITCH_ON, SWITCH_OFF };
/* How RocksDB lays out rows (store/rocksdb/rocksdb_layout.h). */
enum config_layout { LAYOUT_LEVELED, LAYOUT_UNIVERSAL, LAYOUT_BLOB, LAYOUT_COUNT };

struct config;
struct config_unbudgeted;
typedef void config_unbudgeted_fn(const struct config *config, uint32_t lane_count,
                                  struct config_unbudgeted *ret_unbudgeted);

struct config {
    char *source;         /* the file it was read from; NULL: defaults only */
    struct yaml_doc *doc; /* the values in the file and their lines; NULL: defaults only */
    struct machine machine;

    struct {
        char **directories; /* one per device; default: one, see paths.h */
        uint32_t directory_count;
        bool is_default; /* the directory was not named, so the server may make it */
        /* --without-directory: the place of a dead directory; borrowed; NULL: none is */
        const char *without;
        bool must_exist; /* the directories were named and --init was not given: each must already
                            belong to a store */
        uint32_t
            shards_per_directory; /* RocksDB databases in each; fixed once the directory is made */
        uint64_t reserve_bytes;   /* of each directory; 0: computed (store/files/space.h) */
        uint32_t present_shards; /* of all directories, in a copy by config_for_shards(); 0: as many
                                    as a new store has */
    } data;

    struct {
        uint32_t count;            /* worker threads; at most the number of shards */
        uint32_t readers_per_lane; /* threads that read from SSD */
        uint64_t request_bytes;    /* memory for requests in progress, all lanes together */
        uint64_t ticket_bytes; /* memory for lookups that wait for their push, all lanes together */
        uint32_t ticket_seconds;    /* how long a lookup waits for its push */
        uint32_t group_seconds;     /* how long a push waits for the others of its group */
        uint64_t write_queue_bytes; /* memory for rows on their way to SSD, all lanes together */
    } lanes;

    struct {
        struct tier_spec tiers[TIERS_MAX]; /* fastest first; the first is DRAM */
        uint32_t tier_count;
        uint32_t map_percent; /* of the first tier */
    } cache;

    struct {
        uint64_t memtable_bytes;       /* write buffers, all shards together */
        uint64_t metadata_cache_bytes; /* index and filter blocks, all shards together */
        uint32_t background_threads;   /* flush and compaction, all shards together */
        uint32_t bloom_bits_per_key;
        uint32_t compaction_trigger_files;    /* level-0 files of a database that make it due */
        uint32_t compaction_parallel;         /* shards that may compact at the same time */
        uint64_t compaction_bytes_per_second; /* that compactions write; 0: no limit */
        char *compaction_hours;               /* as day_hours_parse() takes it; NULL: all day */
        enum config_layout layout;
        enum config_switch direct_io;
        enum config_switch io_uring; /* for RocksDB's MultiRead */
        char *options;               /* RocksDB's own option string, set last; or NULL */
    } rocksdb;

    struct {
        uint32_t interval_seconds;     /* between the server's own checkpoints; 0: none */
        uint32_t keep;                 /* how many of its own checkpoints the server keeps */
        uint32_t max_checkpoints;      /* the most checkpoints of all users together */
        uint32_t max_user_checkpoints; /* the most of one user; 0: shared out, like other limits of
                                          a user */
        uint64_t transfer_bytes;       /* memory for exports, imports and restores together */
        uint32_t transfer_idle_seconds;
    } checkpoints;

    struct {
        uint64_t capacity_bytes;      /* 0: the size of the file systems */
        uint64_t rated_written_bytes; /* 0: not known */
        uint32_t rated_years;
        double max_dwpd; /* 0: no limit */
    } endurance;

    struct {
        char *path;
        bool is_default;          /* the path was not named: the server may make its directory, */
        bool is_users;            /* which must be the user's own (base/paths.h) */
        uint32_t mode;            /* of the socket file, octal in YAML: 0660 */
        uint64_t max_arena_bytes; /* shared memory one client may ask for */
        uint64_t max_total_arena_bytes; /* shared memory of all clients together */
        uint64_t max_user_arena_bytes;  /* of the clients of one user; 0: shared out */
        uint32_t max_sessions;          /* default 1024, less if descriptors are few */
        uint32_t max_user_sessions;     /* 0: shared out (daemon/engine/memory/accounts.h) */
        uint32_t max_batch_rows; /* ids in one request; request_bytes may have room for fewer */
    } socket;

    struct {
        struct address listen[CONFIG_LISTEN_MAX];
        uint32_t listen_count;
        uint32_t threads;
        enum config_switch io_uring;
        bool insecure; /* addresses that are not of loopback may be plain */
    } rpc;

    struct {
        char *certificate, *key; /* paths; both or NULL */
        char *client_ca;         /* or NULL */
        bool require_certificate;
        uint32_t handshake_threads;
    } tls;

    struct {
        char *file; /* of users and what they may do (daemon/access/access_rules.h); NULL: none */
    } access;

    struct {
        char *listen;           /* NULL: nowhere */
        struct address address; /* the same */
        bool insecure;          /* it may be one that other hosts reach */
        uint32_t max_connections;
        uint32_t tables; /* with metrics of their own */
    } http;

    struct {
        enum log_level level;
        bool is_option;           /* the level is that of the command line */
        uint32_t slow_request_ms; /* longer requests are logged; 0: none */
    } log;

    /* Not keys of the file: these follow from the limit of descriptors (config_descriptors.h). In a
     * config that was not loaded all are 0, which means no limit. */
    struct {
        uint32_t table_files; /* the most open in each database of the store */
        uint32_t read_files; /* the most open in each database of a checkpoint that is being read */
        uint32_t scans;      /* the most exports at the same time */
        bool has_default_sessions;
        bool has_fewer_sessions;
    } descriptors;

    /* Returns the memory that the server's parts take with @lane_count lanes, in addition to the
     * budgets (config_memory.h). */
    config_unbudgeted_fn *unbudgeted;
};

/* Requests get at least this much memory, even if lanes.request_bytes is smaller. */
#define CONFIG_REQUEST_BYTES_LEAST (16 * MIB)

void config_free(struct config *config);
DEFINE_CLEANUP(struct config, config_free)

/* True if the server listens at an address with TLS. */
static inline bool config_has_tls(const struct config *config)
{
    for (uint32_t i = 0; i < config->rpc.listen_count; i++)
        if (config->rpc.listen[i].kind == ADDRESS_TLS)
            return true;
    return false;
}

/* Returns the number of shards of all directories together. */
static inline uint32_t config_shard_count(const struct config *config)
{
    return config->data.present_shards > 0
               ? config->data.present_shards
               : config->data.directory_count * config->data.shards_per_directory;
}

#endif
