/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server_check.h"
#include "config/config_load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/system/thread_room.h"
#include "base/text/bytes.h"
#include "base/tls/tls_context.h"
#include "base/yaml/yaml_doc.h"
#include "daemon/access/access_rules.h"
#include "daemon/http/http.h"
#include "daemon/jobs/worker.h"
#include "daemon/transport/listen/handed_socket.h"
#include "daemon/transport/listen/socket_path.h"
#include "daemon/transport/rpc/net/certificates.h"
#include "daemon/transport/rpc/rpc.h"
#include "daemon/transport/session_maker.h"
#include "store/rocksdb/rocksdb_setup.h"
#include "store/store.h"
#include "tiers/arena/arena.h"
#include "tiers/cache/row_cache.h"

/* Threads of jobs, of sessions' memory, the compaction scheduler, the one that samples devices, the
 * one that reports the progress of a start, RocksDB's timer; and some to spare. */
#define OTHER_THREADS (WORKER_THREADS + SESSION_MAKER_THREADS + 13)

uint64_t server_array_slabs(const struct tier_spec *tier)
{
    return tier->array_bytes / ARENA_SLAB_BYTES;
}

void server_lane_slabs(const struct config *config, uint32_t ret_slabs[TIERS_MAX],
                       uint32_t *ret_map_slabs)
{
    for (uint32_t t = 0; t < config->cache.tier_count; t++)
        ret_slabs[t] = tier_lane_slabs(&config->cache.tiers[t], config->cache.tiers[t].bytes,
                                       config->lanes.count);
    *ret_map_slabs = ret_slabs[0] * config->cache.map_percent / 100;
}

void server_lane_rooms(const struct config *config, uint32_t ret_slabs[TIERS_MAX])
{
    for (uint32_t t = 0; t < config->cache.tier_count; t++)
        ret_slabs[t] = tier_lane_slabs(&config->cache.tiers[t], config->cache.tiers[t].max_bytes,
                                       config->lanes.count);
}

/* To be called before any thread is made. A server that runs has its threads already. */
static enum embtier_err check_threads(const struct config *config, struct err_msg *msg)
{
    /* The lane, its writer, syncer and caster. */
    const uint32_t lanes = config->lanes.count * (4 + config->lanes.readers_per_lane);
    const uint32_t rpc = config->rpc.listen_count > 0 ? config->rpc.threads : 0;
    const uint32_t tls = config_has_tls(config) ? config->tls.handshake_threads : 0;
    const uint32_t http = config->http.listen ? 1 : 0;
    const uint32_t rocksdb = MAX(config->rocksdb.background_threads, 2u) + ROCKSDB_OPENING_THREADS;

    if (store_is_in_use(config))
        return EMBTIER_OK;
    return thread_room_check(lanes + rpc + tls + http + rocksdb + OTHER_THREADS, msg);
}

static enum embtier_err check_cache(const struct config *config, struct err_msg *msg)
{
    uint32_t slabs[TIERS_MAX] = { 0 }, rooms[TIERS_MAX] = { 0 };
    uint32_t map_slabs = 0;
    struct err_msg why = { { 0 } };
    enum embtier_err err;

    server_lane_slabs(config, slabs, &map_slabs);
    server_lane_rooms(config, rooms);
    err = row_cache_check_slabs(slabs, rooms, config->cache.tier_count, map_slabs, &why);
    if (err != EMBTIER_OK)
        return yaml_doc_mistake(config->doc, "cache.tiers[0].bytes", msg, "%s", why.text);
    return EMBTIER_OK;
}

/* A server that runs has its memory already: it is no mistake if there is not as much again. */
static enum embtier_err check_memory(const struct config *config, struct err_msg *msg)
{
    if (!store_is_in_use(config))
        TRY(config_check_available(config, msg));
    for (uint32_t t = 0; t < config->cache.tier_count; t++)
        TRY(arena_check(&config->cache.tiers[t], msg));
    return EMBTIER_OK;
}

/* Finds the file system of a directory. One that does not exist yet is on that of the directory
 * that it will be in. */
static bool file_system_of(const char *directory, struct statvfs *ret_room)
{
    _cleanup_(freep) char *path = strdup(directory);
    bool found = path && statvfs(path, ret_room) == 0;

    while (path && !found && errno == ENOENT && strrchr(path, '/') > path) {
        *strrchr(path, '/') = '\0';
        found = statvfs(path, ret_room) == 0;
    }
    return found;
}

/* If most of a file system is reserved, it has no room for rows, or for others. */
static enum embtier_err check_reserve(const struct config *config, struct err_msg *msg)
{
    struct bytes_text reserve, most;
    struct statvfs room;

    for (uint32_t i = 0; i < config->data.directory_count; i++) {
        const char *const directory = config->data.directories[i];

        if (!file_system_of(directory, &room))
            continue;
        if (config->data.reserve_bytes <= room.f_blocks * room.f_frsize / 2)
            continue;
        return yaml_doc_mistake(config->doc, "data.reserve_bytes", msg,
                                "%s is more than half of the file system of %s; allowed: up to %s",
                                format_bytes(&reserve, config->data.reserve_bytes), directory,
                                format_bytes(&most, room.f_blocks * room.f_frsize / 2));
    }
    return EMBTIER_OK;
}

/* A server that runs has its sockets already, too. */
static enum embtier_err check_sockets(const struct config *config, struct err_msg *msg)
{
    const bool may_live = store_is_in_use(config);
    int handed_fd;

    TRY(handed_socket_find(config->socket.path, &handed_fd, msg));
    TRY(socket_path_check(config->socket.path, may_live || handed_fd >= 0, msg));
    TRY(rpc_check(config, may_live, msg));
    return http_check(config, may_live, msg);
}

static void look_at_files(const struct config *config, struct certificates *certificates,
                          const struct access_rules *rules, file_warning_fn *warn,
                          file_warning_fn *note)
{
    SSL_CTX *const tls = certificates ? certificates_get(certificates) : NULL;

    file_warnings(config, tls, rules, warn, note);
    tls_context_free(tls);
}

enum embtier_err server_check(const struct config *config, file_warning_fn *warn,
                              file_warning_fn *note, struct err_msg *msg)
{
    _cleanup_(certificates_freep) struct certificates *certificates = NULL;
    _cleanup_(access_rules_freep) struct access_rules *rules = NULL;

    TRY(check_threads(config, msg));
    TRY(check_sockets(config, msg));
    if (config->access.file)
        TRY(access_rules_load(config->access.file, config->doc, &rules, msg));
    TRY(certificates_new(config, &certificates, msg));
    TRY(store_check(config, msg));
    TRY(check_reserve(config, msg));
    TRY(check_cache(config, msg));
    TRY(check_memory(config, msg));
    look_at_files(config, certificates, rules, warn, note);
    return EMBTIER_OK;
}
