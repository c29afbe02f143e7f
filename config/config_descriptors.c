/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config_descriptors.h"

#include <inttypes.h>

#include "base/yaml/yaml_doc.h"

/* Standard streams, control thread, signals, libraries, rings of threads outside lanes, files that
 * jobs copy or write. */
#define PROGRAM_DESCRIPTORS 48
/* Each of these threads has a ring or an epoll, an event descriptor, and one for each address. */
#define RPC_THREAD_DESCRIPTORS 2
#define STRANGER_DESCRIPTORS   3
#define RPC_STREAM_DESCRIPTORS (2 * STRANGER_DESCRIPTORS)
/* The thread of HTTP has two sockets that listen, an epoll and an event descriptor. */
#define HTTP_THREAD_DESCRIPTORS 4
/* Each lane has an epoll and an event descriptor, and rings of writer and syncer. Each reader adds
 * one more. */
#define LANE_DESCRIPTORS 4
/* Both databases have LOCK, folder, MANIFEST, LOG and a file being flushed. `replay` has one log
 * and `logged` six, each opened again by the thread that syncs it. */
#define SHARD_DESCRIPTORS 24
/* Logs are kept while a checkpoint is made with small write buffers; up to eleven per shard were
 * seen. One part in LOGS_PART of the rest is for them. */
#define LOGS_PART 8
/* A compacting shard needs these in addition to its open table files: all of level 0, and outputs.
 */
#define COMPACTION_DESCRIPTORS (CONFIG_COMPACTION_INPUTS + 2)
/* A database of a checkpoint that is read needs these in addition to its table files. */
#define READ_DATABASE_DESCRIPTORS 2

/* RocksDB keeps at least this many open. */
#define TABLE_FILES_LEAST 10
/* With more than this, RocksDB's table of open files gets large. */
#define TABLE_FILES_MOST (UINT64_C(1) << 18)
/* Enough, because checkpoints are read in order, file after file of each level. */
#define READ_FILES_MOST 54

/* Taken if the limit is unknown. */
#define LIMIT_UNKNOWN (UINT64_C(1) << 20)

struct needs {
    uint64_t lanes;
    uint64_t shards; /* including compaction, without table files */
    uint64_t table_files;
    uint64_t reading; /* one export and one restore */
    uint64_t rpc;
    uint64_t rest;
    uint64_t all; /* without sessions */
};

/* For each session there may be two streams over RPC that have none (config_rpc_streams()). Each
 * has a socket and the two of its pair. */
static uint64_t session_descriptors(const struct config *config)
{
    return SESSION_DESCRIPTORS + (config->rpc.listen_count > 0 ? RPC_STREAM_DESCRIPTORS : 0);
}

static uint64_t rpc_needs(const struct config *config)
{
    const uint64_t addresses = config->rpc.listen_count;

    if (addresses == 0)
        return 0;
    return addresses + config->rpc.threads * (RPC_THREAD_DESCRIPTORS + addresses) +
           2 * STRANGERS_LEAST * STRANGER_DESCRIPTORS;
}

static uint64_t http_needs(const struct config *config)
{
    return config->http.listen ? HTTP_THREAD_DESCRIPTORS + config->http.max_connections : 0;
}

/* Each directory may be on a device of its own. */
static uint64_t compactions(const struct config *config)
{
    return MIN((uint64_t)config->rocksdb.compaction_parallel * config->data.directory_count,
               (uint64_t)config_shard_count(config));
}

static struct needs needs_of(const struct config *config, uint32_t lane_count)
{
    const uint64_t shards = config_shard_count(config);
    struct needs needs = {
        .lanes = lane_count * (LANE_DESCRIPTORS + (uint64_t)config->lanes.readers_per_lane),
        .shards = config->data.directory_count + shards * SHARD_DESCRIPTORS +
                  compactions(config) * COMPACTION_DESCRIPTORS,
        .table_files = shards * CONFIG_DATABASES_PER_SHARD * TABLE_FILES_LEAST,
        .reading = (shards + 1) * (TABLE_FILES_LEAST + READ_DATABASE_DESCRIPTORS),
        .rpc = rpc_needs(config),
        .rest = PROGRAM_DESCRIPTORS + http_needs(config),
    };

    needs.all =
        needs.rest + needs.lanes + needs.shards + needs.table_files + needs.reading + needs.rpc;
    return needs;
}

static uint64_t less(uint64_t from, uint64_t amount)
{
    return from - MIN(from, amount);
}

static uint64_t clamp(uint64_t value, uint64_t least, uint64_t most)
{
    return MIN(MAX(value, least), most);
}

void config_descriptors_plan(struct config *config, uint32_t lane_count)
{
    const struct needs needs = needs_of(config, lane_count);
    const uint64_t limit =
        config->machine.descriptor_limit > 0 ? config->machine.descriptor_limit : LIMIT_UNKNOWN;
    const uint64_t shards = config_shard_count(config);
    uint64_t left = less(limit, needs.all), reading, files, scans;

    if (config->socket.max_sessions == 0) {
        config->descriptors.has_default_sessions = true;
        config->socket.max_sessions = (uint32_t)clamp(left / 2 / session_descriptors(config),
                                                      SESSIONS_LEAST, SESSIONS_DEFAULT);
        config->descriptors.has_fewer_sessions = config->socket.max_sessions < SESSIONS_DEFAULT;
    }
    left = less(left, (uint64_t)config->socket.max_sessions * session_descriptors(config));
    left -= left / LOGS_PART;
    reading = needs.reading + left / 4;
    files = clamp(less(reading / (shards * CONFIG_SCANS_MAX + 1), READ_DATABASE_DESCRIPTORS),
                  TABLE_FILES_LEAST, READ_FILES_MOST);
    scans =
        clamp(less(reading / (files + READ_DATABASE_DESCRIPTORS), 1) / shards, 1, CONFIG_SCANS_MAX);
    reading = (scans * shards + 1) * (files + READ_DATABASE_DESCRIPTORS);
    left = less(left + needs.reading + needs.table_files, reading);
    config->descriptors.scans = (uint32_t)scans;
    config->descriptors.read_files = (uint32_t)files;
    config->descriptors.table_files = (uint32_t)clamp(left / shards / CONFIG_DATABASES_PER_SHARD,
                                                      TABLE_FILES_LEAST, TABLE_FILES_MOST);
}

enum embtier_err config_descriptors_check(const struct config *config, uint64_t limit,
                                          struct err_msg *msg)
{
    const struct needs needs = needs_of(config, config->lanes.count);
    const uint64_t sessions = config->socket.max_sessions * session_descriptors(config);

    if (needs.all + sessions <= limit)
        return EMBTIER_OK;
    return yaml_doc_mistake(
        config->doc, "socket.max_sessions", msg,
        "at least %" PRIu64 " file descriptors are needed (%u sessions of %u, %" PRIu64
        " shards %" PRIu64 ", table files %" PRIu64 ", an export and a restore %" PRIu64
        ", lanes %" PRIu64 ", RPC %" PRIu64 ", the rest %" PRIu64 "), the process may have %" PRIu64
        "; allowed: fewer sessions or shards, or a higher limit (`ulimit -Hn`, LimitNOFILE= of "
        "the unit)",
        needs.all + sessions, config->socket.max_sessions, (unsigned)session_descriptors(config),
        (uint64_t)config_shard_count(config), needs.shards, needs.table_files, needs.reading,
        needs.lanes, needs.rpc, needs.rest, limit);
}
