/* SPDX-License-Identifier: Apache-2.0 */
/* config_keys.h: the one table of configuration keys, and its products: the structs that libcyaml
 * fills, its schema, defaults, ranges and help. Only for use inside config/ and its tests. */
#ifndef EMBTIER_CONFIG_CONFIG_KEYS_H
#define EMBTIER_CONFIG_CONFIG_KEYS_H

#include <stddef.h>
#include <stdint.h>

#include "config/config.h"

struct cyaml_schema_value;

#define CONFIG_BYTES_MAX (UINT64_C(1) << 54) /* a sum of a few does not overflow */
#define CONFIG_MIB       (UINT64_C(1) << 20)

/* K(section, key, type, when, default, least, most, description). The key is also the member's name
 * in struct config. LIVE: a running server takes a new value (daemon/jobs/knobs/knobs_live.c);
 * START: only a start does. HAND: a start too, and no client may write it into the file, as
 * it says where the server is and whom it lets in. A default in parentheses is computed
 * (config_load.c). For texts, least and most count bytes. */
#define CONFIG_DATA_KEYS(K)                                                                        \
    K(data, directories, PATHS, HAND, "(state directory)", 1, CONFIG_DIRECTORIES_MAX,              \
      "directories of the RocksDB databases, one per device")                                      \
    K(data, shards_per_directory, U32, START, "4", 1, CONFIG_SHARDS_MAX,                           \
      "databases in each directory; fixed once the store is made")                                 \
    K(data, reserve_bytes, BYTES, START,                                                           \
      "(five quarters of memtable_bytes, divided, plus 32MiB; at most a 16th of the disk)",        \
      CONFIG_MIB, CONFIG_BYTES_MAX,                                                                \
      "space reserved in each directory for drops, deletions, checkpoints, stops and starts")

#define CONFIG_LANES_KEYS(K)                                                                       \
    K(lanes, count, U32, START, "(least of cores, 8 and shards)", 1, CONFIG_LANES_MAX,             \
      "worker threads, each with its share of the rows; at most one per shard")                    \
    K(lanes, readers_per_lane, U32, LIVE, "4", 1, CONFIG_READERS_MAX,                              \
      "threads of each lane that read from SSD")                                                   \
    K(lanes, request_bytes, BYTES, START, "64MiB", CONFIG_MIB, CONFIG_BYTES_MAX,                   \
      "memory for requests in progress, all lanes together")                                       \
    K(lanes, write_queue_bytes, BYTES, START, "64MiB", CONFIG_MIB, CONFIG_BYTES_MAX,               \
      "memory for rows on their way to SSD, all lanes together")                                   \
    K(lanes, ticket_bytes, BYTES, START, "64MiB", CONFIG_MIB, CONFIG_BYTES_MAX,                    \
      "memory for lookups that wait for their push, about 24 bytes per id")                        \
    K(lanes, ticket_seconds, U32, LIVE, "120", 1, 86400,                                           \
      "time for which a lookup's ticket waits for its push")                                       \
    K(lanes, group_seconds, U32, LIVE, "600", 1, 86400,                                            \
      "time for which a push waits for the other pushes of its group")

#define CONFIG_CACHE_KEYS(K)                                                                       \
    K(cache, tiers, TIERS, START, "(one of DRAM, 1GiB; less where memory is scarce)", 1,           \
      TIERS_MAX, "memory of the row cache, fastest first; the first is DRAM")                      \
    K(cache, map_percent, U32, START, "3", 0, 25,                                                  \
      "share of the first tier for maps from ids to rows of small tables; 0: none")

#define CONFIG_ROCKSDB_KEYS(K)                                                                     \
    K(rocksdb, memtable_bytes, BYTES, LIVE, "128MiB", CONFIG_MIB, CONFIG_BYTES_MAX,                \
      "memory for write buffers, all shards together")                                             \
    K(rocksdb, metadata_cache_bytes, BYTES, LIVE, "128MiB", CONFIG_MIB, CONFIG_BYTES_MAX,          \
      "memory for index and filter blocks, all shards together")                                   \
    K(rocksdb, background_threads, U32, LIVE, "2", 1, 256,                                         \
      "threads that flush and compact, all shards together")                                       \
    K(rocksdb, bloom_bits_per_key, U32, START, "10", 0, 64,                                        \
      "bits of the bloom filter per row; 0: none")                                                 \
    K(rocksdb, compaction_trigger_files, U32, LIVE, "4", 2, CONFIG_TRIGGER_FILES_MAX,              \
      "new files of a shard that start a compaction")                                              \
    K(rocksdb, compaction_parallel, U32, LIVE, "1", 1, CONFIG_SHARDS_MAX,                          \
      "shards of each device that may compact at the same time")                                   \
    K(rocksdb, compaction_bytes_per_second, BYTES, LIVE, "0", 0, CONFIG_BYTES_MAX,                 \
      "bytes a second that compactions write, all shards together, while updates do not need "     \
      "more; 0: no limit")                                                                         \
    K(rocksdb, compaction_hours, TEXT, LIVE, "(all day)", 1, 255,                                  \
      "local time in which shards compact, like 22:00-06:00 or 12:00-13:00,20:00-24:00; at other " \
      "times only those that would soon refuse updates")                                           \
    K(rocksdb, layout, LAYOUT, START, "leveled", 0, 0,                                             \
      "how rows lie on SSD: leveled (least space), universal (fewest bytes written, up to twice "  \
      "the space), blob (rows apart from their keys)")                                             \
    K(rocksdb, direct_io, SWITCH, START, "auto", 0, 0,                                             \
      "bypass the page cache; auto: if the file system supports it")                               \
    K(rocksdb, io_uring, SWITCH, START, "auto", 0, 0,                                              \
      "read the blocks of a batch at once, through io_uring; auto: if the kernel allows it")       \
    K(rocksdb, options, TEXT, START, "(none)", 1, 4095,                                            \
      "RocksDB's own option string, applied last, for options that have no key here")

#define CONFIG_CHECKPOINTS_KEYS(K)                                                                 \
    K(checkpoints, interval_seconds, U32, LIVE, "600", 0, 31536000,                                \
      "time between the server's own checkpoints, which a crash restores; 0: none")                \
    K(checkpoints, keep, U32, LIVE, "2", 1, 1000,                                                  \
      "how many of the server's own checkpoints are kept")                                         \
    K(checkpoints, max_checkpoints, U32, LIVE, "1024", 1, 65536,                                   \
      "largest number of checkpoints that users make, all users together")                         \
    K(checkpoints, max_user_checkpoints, U32, LIVE, "(three quarters of what others leave)", 1,    \
      65536, "largest number of checkpoints of one user")                                          \
    K(checkpoints, transfer_bytes, BYTES, START,                                                   \
      "(256MiB; less where memory is scarce, more with many shards)", CONFIG_MIB,                  \
      CONFIG_BYTES_MAX, "memory for exports, imports, restores and a profile, together")           \
    K(checkpoints, transfer_idle_seconds, U32, LIVE, "300", 0, 31536000,                           \
      "end an export or import if its client is silent for this long; 0: never")

#define CONFIG_ENDURANCE_KEYS(K)                                                                   \
    K(endurance, capacity_bytes, BYTES, LIVE, "(of the file systems of data.directories)",         \
      CONFIG_MIB, UINT64_C(1) << 60, "capacity of the drives, together; for `embtier endurance`")  \
    K(endurance, rated_written_bytes, BYTES, LIVE, "(none)", CONFIG_MIB, UINT64_C(1) << 62,        \
      "bytes that the drives are rated to have written in their life (TBW), together")             \
    K(endurance, rated_years, U32, LIVE, "5", 1, 100, "years of the drives' rated life")           \
    K(endurance, max_dwpd, DECIMAL, LIVE, "(none)", 0, 1000,                                       \
      "drive writes a day above which the server warns, and then holds write-back, by device")

#define CONFIG_SOCKET_KEYS(K)                                                                      \
    K(socket, path, TEXT, HAND, "(runtime directory)/embtier.sock", 1, 107,                        \
      "Unix socket for local clients and the command line")                                        \
    K(socket, mode, MODE, HAND, "0660", 0, 0777, "permissions of the socket file, octal")          \
    K(socket, max_arena_bytes, BYTES, LIVE, "(lesser of 1GiB and the share of a single user)",     \
      65536, CONFIG_BYTES_MAX, "largest shared memory of one client")                              \
    K(socket, max_total_arena_bytes, BYTES, LIVE, "(4GiB; less where memory is scarce)", 65536,    \
      CONFIG_BYTES_MAX, "largest shared memory of all clients together")                           \
    K(socket, max_user_arena_bytes, BYTES, LIVE,                                                   \
      "(three quarters of what others leave; max_arena_bytes if that is set to more)", 65536,      \
      CONFIG_BYTES_MAX, "largest shared memory of all clients of one user")                        \
    K(socket, max_sessions, U32, LIVE, "(1024; less where descriptors are few)", 1, 65536,         \
      "largest number of clients connected at the same time")                                      \
    K(socket, max_user_sessions, U32, LIVE, "(three quarters of what others leave)", 1, 65536,     \
      "largest number of clients of one user connected at the same time")                          \
    K(socket, max_batch_rows, U32, START, "1048576", 1, 67108864,                                  \
      "largest number of row ids in one request; lanes.request_bytes may have room for fewer")

#define CONFIG_RPC_KEYS(K)                                                                         \
    K(rpc, listen, PATHS, HAND, "(nowhere)", 1, CONFIG_LISTEN_MAX,                                 \
      "addresses for clients over a network: tls://HOST:PORT, tcp://HOST:PORT, unix+rpc:PATH")     \
    K(rpc, threads, U32, START, "1", 1, 64,                                                        \
      "threads that receive from these clients and send to them")                                  \
    K(rpc, io_uring, SWITCH, START, "auto", 0, 0,                                                  \
      "whether these threads use io_uring; without it they use epoll")                             \
    K(rpc, insecure, ANSWER, HAND, "no", 0, 0,                                                     \
      "whether other hosts may reach addresses whose clients are neither known nor encrypted")

#define CONFIG_TLS_KEYS(K)                                                                         \
    K(tls, certificate, TEXT, HAND, "(none; must be given for tls://)", 1, 4095,                   \
      "PEM file: the server's certificate, then those of its signers")                             \
    K(tls, key, TEXT, HAND, "(none; must be given for tls://)", 1, 4095,                           \
      "PEM file: the certificate's private key")                                                   \
    K(tls, client_ca, TEXT, HAND, "(none: clients are asked for no certificate)", 1, 4095,         \
      "PEM file: authorities whose certificates clients may show")                                 \
    K(tls, require_certificate, ANSWER, HAND, "no", 0, 0,                                          \
      "whether clients without a certificate are refused")                                         \
    K(tls, handshake_threads, U32, START, "1", 1, 64, "threads that let new clients in")

#define CONFIG_ACCESS_KEYS(K)                                                                      \
    K(access, file, TEXT, HAND, "(none)", 1, 4095,                                                 \
      "users, and what each may do; without it every client may do all")

#define CONFIG_HTTP_KEYS(K)                                                                        \
    K(http, listen, TEXT, HAND, "(nowhere)", 1, 300,                                               \
      "address of metrics and health checks, HOST:PORT or [IPV6]:PORT")                            \
    K(http, insecure, ANSWER, HAND, "no", 0, 0,                                                    \
      "whether other hosts may reach it; all who can are shown figures and names of tables")       \
    K(http, max_connections, U32, START, "64", 1, 1024,                                            \
      "largest number of connections at the same time")                                            \
    K(http, tables, U32, START, "20", 0, 120,                                                      \
      "tables of most traffic that have metrics of their own; the others are `other`")

#define CONFIG_LOG_KEYS(K)                                                                         \
    K(log, level, LEVEL, LIVE, "info", 0, 0, "which lines are written")                            \
    K(log, slow_request_ms, U32, LIVE, "0", 0, 86400000,                                           \
      "requests that take so many milliseconds are logged, with where the time went; 0: none")

/* Keys of each item of cache.tiers, which are also members of struct tier_spec. */
#define CONFIG_TIER_KEYS(K)                                                                        \
    K(tier, name, NAME, START, "(the kind)", 1, TIER_NAME_MAX, "the tier's name in statistics")    \
    K(tier, kind, KIND, START, "dram", 0, 0, "kind of memory")                                     \
    K(tier, bytes, BYTES, LIVE, "(must be given)", 2 * CONFIG_MIB, CONFIG_BYTES_MAX,               \
      "size for the whole server; lanes share it evenly")                                          \
    K(tier, max_bytes, BYTES, START, "(up to 16 times bytes)", 2 * CONFIG_MIB, CONFIG_BYTES_MAX,   \
      "size to which bytes may be set while the server runs")                                      \
    K(tier, array_bytes, BYTES, START, "0", 0, CONFIG_BYTES_MAX,                                   \
      "part of bytes that is kept for arrays and for hot rows of splits; the rest is the row "     \
      "cache")                                                                                     \
    K(tier, path, PATH, HAND, "(none; must be given for kind file)", 1, TIER_PATH_MAX,             \
      "directory of the tier's file; kind file only")                                              \
    K(tier, numa_node, NODE, START, "(none; must be given for kind numa)", 0, 1023,                \
      "number of the NUMA node; kind numa only")

/* S(section, its keys) */
#define CONFIG_SECTIONS(S)                                                                         \
    S(data, CONFIG_DATA_KEYS)                                                                      \
    S(lanes, CONFIG_LANES_KEYS)                                                                    \
    S(cache, CONFIG_CACHE_KEYS)                                                                    \
    S(rocksdb, CONFIG_ROCKSDB_KEYS)                                                                \
    S(checkpoints, CONFIG_CHECKPOINTS_KEYS)                                                        \
    S(endurance, CONFIG_ENDURANCE_KEYS)                                                            \
    S(socket, CONFIG_SOCKET_KEYS)                                                                  \
    S(rpc, CONFIG_RPC_KEYS)                                                                        \
    S(tls, CONFIG_TLS_KEYS)                                                                        \
    S(access, CONFIG_ACCESS_KEYS)                                                                  \
    S(http, CONFIG_HTTP_KEYS)                                                                      \
    S(log, CONFIG_LOG_KEYS)

enum config_type {
    CONFIG_U32,
    CONFIG_DECIMAL, /* double */
    CONFIG_BYTES,
    CONFIG_MODE, /* uint32_t, octal */
    CONFIG_NODE, /* int */
    CONFIG_SWITCH,
    CONFIG_LAYOUT,
    CONFIG_ANSWER, /* bool: yes or no */
    CONFIG_LEVEL,
    CONFIG_KIND,
    CONFIG_TEXT,  /* char *, malloced */
    CONFIG_NAME,  /* char [] of most + 1, characters A-Z a-z 0-9 _ - */
    CONFIG_PATH,  /* char [] of most + 1 */
    CONFIG_PATHS, /* list of texts */
    CONFIG_TIERS, /* list of tiers */
};

enum config_when { CONFIG_START, CONFIG_LIVE, CONFIG_HAND };

struct config_key {
    const char *section; /* "tier" for keys of a tier */
    const char *name;
    enum config_type type;
    enum config_when when; /* a new value is taken */
    const char *default_text;
    uint64_t least;
    uint64_t most;
    const char *text;
    size_t section_offset; /* of the section's pointer in struct raw_config */
    size_t raw_offset;     /* in the section's raw struct */
    size_t offset;         /* in struct config, or struct tier_spec */
};

/* libcyaml fills these: each value as it was written, NULL where it is missing. */
#define RAW_VALUE(key) char *key;
#define RAW_PATHS(key)                                                                             \
    char **key;                                                                                    \
    uint32_t key##_count;
#define RAW_TIERS(key)                                                                             \
    struct raw_tier *key;                                                                          \
    uint32_t key##_count;
#define RAW_U32                             RAW_VALUE
#define RAW_DECIMAL                         RAW_VALUE
#define RAW_BYTES                           RAW_VALUE
#define RAW_MODE                            RAW_VALUE
#define RAW_NODE                            RAW_VALUE
#define RAW_SWITCH                          RAW_VALUE
#define RAW_LAYOUT                          RAW_VALUE
#define RAW_ANSWER                          RAW_VALUE
#define RAW_LEVEL                           RAW_VALUE
#define RAW_KIND                            RAW_VALUE
#define RAW_TEXT                            RAW_VALUE
#define RAW_NAME                            RAW_VALUE
#define RAW_PATH                            RAW_VALUE
#define RAW_MEMBER(section, key, type, ...) RAW_##type(key)
#define RAW_SECTION(section, KEYS)                                                                 \
    struct raw_##section {                                                                         \
        KEYS(RAW_MEMBER)                                                                           \
    };
RAW_SECTION(tier, CONFIG_TIER_KEYS)
CONFIG_SECTIONS(RAW_SECTION)

struct raw_config {
#define RAW_POINTER(section, KEYS) struct raw_##section *section;
    CONFIG_SECTIONS(RAW_POINTER)
#undef RAW_POINTER
};

extern const struct cyaml_schema_value config_schema;
extern const struct config_key config_keys[];
extern const uint32_t config_key_count;
extern const struct config_key config_tier_keys[];
extern const uint32_t config_tier_key_count;

static inline int config_default_is_computed(const struct config_key *key)
{
    return key->default_text[0] == '(';
}

/* Parses one value into @ret_value, which has the type of the key's member. EMBTIER_INVALID: the
 * text is not such a value, or is out of range. Lists are not values. */
MUST_CHECK enum embtier_err config_value_parse(const struct config_key *key, const char *text,
                                               void *ret_value);

/* Returns the allowed values as text: "1 to 64" or "auto, on, off". */
struct config_allowed {
    char text[160];
};
const char *config_allowed(struct config_allowed *buffer, const struct config_key *key);

/* Writes the words of a type of words into @ret_words, and returns their number; 0: other types. */
size_t config_words(enum config_type type, const char *const **ret_words);

/* Returns "live", "start" or "hand". */
const char *config_when_word(enum config_when when);

/* Calls @each for all keys, in the order of the table. Those of tiers come behind cache.tiers, with
 * "cache.tiers[]." before their names. @name is borrowed. */
typedef void config_key_fn(void *context, const char *name, const struct config_key *key);
void config_each_key(config_key_fn *each, void *context);
/* Prints one line per key, "key <TAB> type <TAB> default <TAB> description <TAB> live" (or
 * "start", "hand"), for --help-config and the man page. */
void config_print_keys(FILE *out);

#endif
