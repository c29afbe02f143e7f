/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "base/tls/tls_context.h"
#include "base/yaml/yaml_doc.h"
#include "config/config_shards.h"
#include "daemon/access/access.h"
#include "daemon/control/control.h"
#include "daemon/control/process/notify.h"
#include "daemon/control/process/signals.h"
#include "daemon/endurance/endurance.h"
#include "daemon/engine/lane/lane.h"
#include "daemon/engine/memory/accounts.h"
#include "daemon/engine/memory/request_memory.h"
#include "daemon/engine/memory/ticket_memory.h"
#include "daemon/engine/ops/groups/group.h"
#include "daemon/engine/tables/row_routes.h"
#include "daemon/engine/tables/table_arrays.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/file_warnings.h"
#include "daemon/http/http.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "daemon/jobs/knobs/knobs.h"
#include "daemon/jobs/plan/plan_record.h"
#include "daemon/jobs/profile/profiles.h"
#include "daemon/jobs/reload/reload.h"
#include "daemon/jobs/restore/checkpoint_restore.h"
#include "daemon/jobs/restore/restore.h"
#include "daemon/jobs/transfer/transfer_memory.h"
#include "daemon/server_check.h"
#include "daemon/stop.h"
#include "daemon/transport/rpc/net/certificates.h"
#include "daemon/transport/rpc/rpc.h"
#include "daemon/transport/shm/shm_channel.h"
#include "store/resharding/reshard.h"
#include "store/resharding/reshard_record.h"
#include "store/store.h"
#include "tiers/arena/arena.h"
#include "tiers/cache/row_cache.h"

/* A check of a changed file takes less than a second; a data directory that hangs must not keep
 * other knobs waiting for ever. */
#define KNOB_CHECK_MS 60000

struct server {
    struct server_parts parts;
    struct control *control;
    struct certificates *certificates; /* NULL: no address has TLS */
    struct rpc *rpc;                   /* NULL: no addresses */
    struct http *http;                 /* NULL: no address */
    struct row_routes *routes;
    int signal_fd;
};

/* ---- Making ---- */

/* Logs the checkpoint that replay tables, or all tables, went back to. */
static void log_recovery(const struct store *store)
{
    struct store_recovery recovery;
    char step[24] = "none";

    store_recovery(store, &recovery);
    if (!recovery.happened)
        return;
    if (recovery.checkpoint.id == 0) {
        log_warn("the last run did not end cleanly and there is no checkpoint: rows of replay "
                 "tables are back at their initial values",
                 "left_of_them=shard-NNNN/replay.lost spent_ms=%" PRIu64,
                 recovery.spent_ns / 1000000);
        return;
    }
    if (recovery.checkpoint.has_step)
        snprintf(step, sizeof(step), "%" PRIu64, recovery.checkpoint.step);
    log_warn(recovery.after_crash
                 ? "the last run did not end cleanly: replay tables are as they were when the "
                   "newest checkpoint was made; later updates are lost"
                 : "all tables are as they were when the requested checkpoint was made; omit "
                   "--restore from now on, or the next start restores it again",
             "checkpoint=%" PRIu64 " step=%s made_seconds_ago=%" PRIu64 " spent_ms=%" PRIu64,
             recovery.checkpoint.id, step,
             clock_since(clock_wall_ms(), recovery.checkpoint.created_ms) / 1000,
             recovery.spent_ns / 1000000);
}

/* Buckets may have moved to more shards than the configuration counts. */
static void fit_shards(const struct server *server)
{
    const struct config *const config = server->parts.config;
    struct reshard_facts facts;
    struct err_msg why = { { 0 } };
    struct config next;
    enum embtier_err err;

    reshard_look(server->parts.store, &facts);
    if (facts.shards == config_shard_count(config))
        return;
    err = config_for_shards(config, facts.shards, &next, &why);
    if (err == EMBTIER_OK)
        err = store_share_files(server->parts.store, &next, &why);
    if (err != EMBTIER_OK)
        log_warn("memory or file descriptors may not suffice for all shards",
                 "shards=%" PRIu32 " why=%s", facts.shards, LOG_QUOTED(why.text));
}

static enum embtier_err open_store(struct server *server, uint64_t restore_id, struct err_msg *msg)
{
    const struct config *const config = server->parts.config;
    struct reshard_record record = { 0 };
    struct store_stats stats;

    if (config->descriptors.has_fewer_sessions)
        log_warn("fewer clients than the default can connect, because the process may have few "
                 "file descriptors: raise LimitNOFILE= of the unit or `ulimit -Hn`, or set "
                 "socket.max_sessions",
                 "max_sessions=%u descriptors=%" PRIu64 " table_files=%u",
                 config->socket.max_sessions, config->machine.descriptor_limit,
                 config->descriptors.table_files);
    TRY(store_open(&(struct store_opts){ .config = config, .restore_id = restore_id },
                   &server->parts.store, msg));
    log_recovery(server->parts.store);
    store_stats(server->parts.store, &stats);
    if (!stats.direct_io && config->rocksdb.direct_io == SWITCH_AUTO)
        log_warn(
            "the file system has no direct I/O; SSD is read and written through the page cache",
            "directories=%u", config->data.directory_count);
    if (stats.recovered_log_bytes > 0)
        log_info("logs of async and sync tables were read", "bytes=%" PRIu64 " spent_ms=%" PRIu64,
                 stats.recovered_log_bytes, stats.log_recovery_ns / 1000000);
    if (config->rocksdb.options && strstr(config->rocksdb.options, "wal_recovery_mode"))
        log_warn("rocksdb.options sets wal_recovery_mode: acknowledged updates behind damage in a "
                 "log may have been left out; remove the option again",
                 "options=%s", LOG_QUOTED(config->rocksdb.options));
    fit_shards(server);
    /* The job itself logs what is wrong with a damaged one. */
    server->parts.moves_buckets = reshard_record_read(store_first_directory(server->parts.store),
                                                      &record, NULL) != EMBTIER_OK ||
                                  record.shards > 0;
    log_info("store open",
             "directories=%u shards=%u stored_bytes=%" PRIu64 " direct_io=%s io_uring=%s",
             config->data.directory_count, store_shard_count(server->parts.store),
             stats.stored_bytes, stats.direct_io ? "yes" : "no", stats.io_uring ? "yes" : "no");
    return EMBTIER_OK;
}

static void hold_write_back(void *context, const char *directory, bool is_held, uint64_t bytes)
{
    store_hold(context, directory, is_held, bytes);
}

/* For all causes. */
static uint64_t written_sum(const struct store_written *written)
{
    return written->flush_bytes + written->compaction_bytes + written->log_bytes +
           written->blob_bytes + written->checkpoint_bytes + written->import_bytes +
           written->other_bytes;
}

static uint64_t sum_store_bytes(void *context)
{
    const struct server *const server = context;
    struct store_written written;

    store_written(server->parts.store, STORE_ALL_TABLES, &written);
    return written_sum(&written);
}

static bool list_written(void *context, uint32_t after, uint32_t most,
                         struct table_bytes *ret_tables, uint32_t *ret_count)
{
    const struct server *const server = context;
    _cleanup_(freep) struct table_info *infos = NULL;
    bool more;

    if (tables_page(server->parts.tables, after, most, &infos, ret_count, &more) != EMBTIER_OK)
        return false;
    for (uint32_t i = 0; i < *ret_count; i++) {
        ret_tables[i] = (struct table_bytes){ .table_id = infos[i].table_id,
                                              .bytes = written_sum(&infos[i].written) };
        memcpy(ret_tables[i].uuid, infos[i].spec.uuid, sizeof(ret_tables[i].uuid));
    }
    return true;
}

/* Comes before the tiers are made, as their files go to devices too. */
static enum embtier_err make_endurance(struct server *server, struct err_msg *msg)
{
    return endurance_new(
        &(struct endurance_opts){ .config = server->parts.config,
                                  .host = &host_files,
                                  .directory = store_first_directory(server->parts.store),
                                  .hold = hold_write_back,
                                  .context = server->parts.store,
                                  .list_tables = list_written,
                                  .store_bytes = sum_store_bytes,
                                  .tables_context = server },
        clock_wall_ms(), &server->parts.endurance, msg);
}

/* Makes the slabs be there that a tier has at the start: the first ones of each lane's part, maps
 * at the end of that, arrays at the end of all. */
static enum embtier_err fill_arena(const struct config *config, uint32_t t, struct arena *arena,
                                   struct err_msg *msg)
{
    const uint64_t arrays = server_array_slabs(&config->cache.tiers[t]);
    const uint64_t all = arena_bytes(arena) / ARENA_SLAB_BYTES;
    const uint64_t room = (all - arrays) / config->lanes.count;
    uint32_t slabs[TIERS_MAX] = { 0 };
    uint32_t maps = 0;

    server_lane_slabs(config, slabs, &maps);
    maps = t == 0 ? maps : 0;
    TRY(arena_check_available(
        arena, (slabs[t] * (uint64_t)config->lanes.count + arrays) * ARENA_SLAB_BYTES, msg));
    for (uint32_t i = 0; i < config->lanes.count; i++) {
        TRY(arena_fill(arena, i * room, slabs[t] - maps, msg));
        TRY(arena_fill(arena, (i + 1) * room - maps, maps, msg));
    }
    return arena_fill(arena, all - arrays, arrays, msg);
}

/* A system that gives no addresses without memory (vm.overcommit_memory) gives those of the tier's
 * own size. */
static enum embtier_err make_arena(struct server *server, uint32_t t, struct err_msg *msg)
{
    const struct config *const config = server->parts.config;
    const struct tier_spec *const tier = &config->cache.tiers[t];
    const uint64_t arrays = server_array_slabs(tier);
    struct arena **const arena = &server->parts.arenas[t];
    uint32_t slabs[TIERS_MAX] = { 0 }, rooms[TIERS_MAX] = { 0 };
    uint32_t maps = 0;
    struct err_msg why = { { 0 } };
    enum embtier_err err;

    server_lane_slabs(config, slabs, &maps);
    server_lane_rooms(config, rooms);
    err = arena_new_empty(
        tier, (rooms[t] * (uint64_t)config->lanes.count + arrays) * ARENA_SLAB_BYTES, arena, &why);
    if (err != EMBTIER_OK && rooms[t] > slabs[t]) {
        TRY(arena_new_empty(tier,
                            (slabs[t] * (uint64_t)config->lanes.count + arrays) * ARENA_SLAB_BYTES,
                            arena, msg));
        log_warn("a tier cannot grow while the server runs: the system gives no addresses for more",
                 "tier=%s bytes=%" PRIu64 " max_bytes=%" PRIu64 " error=%s", tier->name,
                 tier->bytes, tier->max_bytes, LOG_QUOTED(why.text));
    } else if (err != EMBTIER_OK) {
        return err_set(msg, err, "%s", why.text);
    }
    return fill_arena(config, t, *arena, msg);
}

static enum embtier_err make_arenas(struct server *server, struct err_msg *msg)
{
    const struct config *const config = server->parts.config;

    log_info("reserving the memory of the tiers, every page of it", "tiers=%" PRIu32,
             config->cache.tier_count);
    for (uint32_t t = 0; t < config->cache.tier_count; t++) {
        const struct tier_spec *const tier = &config->cache.tiers[t];

        TRY(make_arena(server, t, msg));
        log_info("tier reserved",
                 "tier=%s bytes=%" PRIu64 " array_bytes=%" PRIu64 " max_bytes=%" PRIu64, tier->name,
                 tier->bytes, server_array_slabs(tier) * ARENA_SLAB_BYTES,
                 arena_bytes(server->parts.arenas[t]));
    }
    return EMBTIER_OK;
}

/* Arrays have the last slabs of each tier's memory. */
static enum embtier_err make_arrays(struct server *server, struct err_msg *msg)
{
    const struct config *const config = server->parts.config;
    struct array_tier tiers[TIERS_MAX];

    for (uint32_t t = 0; t < config->cache.tier_count; t++) {
        const struct tier_spec *const tier = &config->cache.tiers[t];
        const uint64_t slabs = server_array_slabs(tier);
        const struct arena *const arena = server->parts.arenas[t];

        tiers[t] = (struct array_tier){
            .name = tier->name,
            .base = (uint8_t *)arena_base(arena) + arena_bytes(arena) - slabs * ARENA_SLAB_BYTES,
            .slabs = slabs,
        };
    }
    return table_arrays_new(tiers, config->cache.tier_count, &server->parts.arrays, msg);
}

static enum embtier_err load_tables(struct server *server, struct err_msg *msg)
{
    struct tables_key key = { { 0 } };
    struct err_msg why = { { 0 } };
    const enum embtier_err err =
        tables_load(server->parts.tables, &lane_tables_rows, server->parts.lanes,
                    server->parts.lane_count, server->parts.arrays, &key, &why);

    if (err == EMBTIER_CONFIG)
        return yaml_doc_mistake(server->parts.config->doc, key.text, msg, "%s", why.text);
    return err == EMBTIER_OK ? err : err_set(msg, err, "%s", why.text);
}

/* Returns how many bytes prefetches may pin on all lanes together. */
static uint64_t pinned_bytes(const struct config *config)
{
    uint32_t slabs[TIERS_MAX] = { 0 };
    uint32_t map_slabs = 0;

    server_lane_slabs(config, slabs, &map_slabs);
    return (uint64_t)slabs[0] * ARENA_SLAB_BYTES / ROW_CACHE_PINNED_PART * config->lanes.count;
}

/* Polling pays where each lane has its own core and one is left for the client. */
static uint64_t spin_ns(uint32_t lane_count, uint32_t core_count)
{
    if (2 * lane_count <= core_count)
        return 50000;
    return lane_count < core_count ? 10000 : 0;
}

static enum embtier_err make_lane(struct server *server, uint32_t index, struct err_msg *msg)
{
    const struct config *const config = server->parts.config;
    struct lane_opts opts = {
        .index = index,
        .lane_count = server->parts.lane_count,
        .lanes = server->parts.lanes,
        .store = server->parts.store,
        .tables = server->parts.tables,
        .memory = server->parts.memory,
        .ticket_memory = server->parts.ticket_memory,
        .ticket_ns = config->lanes.ticket_seconds * UINT64_C(1000000000),
        .slow_request_ns = config->log.slow_request_ms * UINT64_C(1000000),
        .routes = server->routes,
        .arenas = server->parts.arenas,
        .arena_count = config->cache.tier_count,
        .reader_count = config->lanes.readers_per_lane,
        .write_queue_bytes = config->lanes.write_queue_bytes / server->parts.lane_count,
        .max_batch_rows = config->socket.max_batch_rows,
        .take_ids = LANE_TAKE_IDS,
        .spin_ns = spin_ns(server->parts.lane_count, server->parts.config->machine.core_count),
        .clock = &clock_monotonic,
    };

    server_lane_slabs(config, opts.arena_slab_count, &opts.map_slabs);
    for (uint32_t t = 0; t < config->cache.tier_count; t++) {
        opts.arena_room_slabs[t] = tier_lane_slabs(
            &config->cache.tiers[t], arena_bytes(server->parts.arenas[t]), config->lanes.count);
        opts.arena_first_slab[t] = opts.arena_room_slabs[t] * index;
    }
    return lane_new(&opts, &server->parts.lanes[index], msg);
}

static enum embtier_err make_lanes(struct server *server, struct err_msg *msg)
{
    struct server_parts *const parts = &server->parts;

    parts->lanes = calloc(parts->config->lanes.count, sizeof(struct lane *));
    if (!parts->lanes)
        return err_set(msg, EMBTIER_NO_MEMORY, "lanes: out of memory");
    parts->lane_count = parts->config->lanes.count;
    for (uint32_t i = 0; i < parts->lane_count; i++)
        TRY(make_lane(server, i, msg));
    for (uint32_t i = 0; i < parts->lane_count; i++)
        TRY(lane_start(parts->lanes[i], msg));
    return EMBTIER_OK;
}

/* A signal ends the restore. */
static bool wants_stop(void *context)
{
    const struct server *const server = context;

    return signals_take_stop(server->signal_fd, SIGNAL_STOPS, NULL);
}

/* If @other has a record, its tables are made first. */
static enum embtier_err make_checkpoints(struct server *server,
                                         const struct other_checkpoint *other, struct err_msg *msg)
{
    struct server_parts *const parts = &server->parts;
    const struct config *const config = parts->config;

    accounts_limit(parts->accounts, ACCOUNT_CHECKPOINTS, config->checkpoints.max_checkpoints,
                   config->checkpoints.max_user_checkpoints);
    TRY(checkpoints_new(
        &(struct checkpoints_opts){ .store = parts->store,
                                    .tables = parts->tables,
                                    .memory = parts->transfer_memory,
                                    .accounts = parts->accounts,
                                    .lanes = parts->lanes,
                                    .lane_count = parts->lane_count,
                                    .core_count = config->machine.core_count,
                                    .interval_ns =
                                        config->checkpoints.interval_seconds * UINT64_C(1000000000),
                                    .keep = config->checkpoints.keep },
        &parts->checkpoints, msg));
    TRY(checkpoints_begin(parts->checkpoints, msg));
    if (other->record)
        TRY(restore_other_checkpoint(
            parts->checkpoints, other,
            &(struct restore_watch){ .wants_stop = wants_stop, .context = server }, msg));
    if (atomic_load(checkpoints_stopping(parts->checkpoints))) /* the signal has been read */
        return err_set(msg, EMBTIER_SHUTDOWN, "stopped by a signal");
    if (store_replay_refusal(parts->store) != EMBTIER_OK) /* no replay row may change yet */
        return EMBTIER_OK;
    return store_serve(parts->store, msg);
}

/* Checks the other store before one is made here. If its name is mistaken, the next start must find
 * none. */
static enum embtier_err check_other(const struct server_restore *restore, struct err_msg *msg)
{
    _cleanup_(other_checkpoint_close) struct other_checkpoint other = { 0 };

    return other_checkpoint_open(restore->directories, restore->directory_count, restore->id, NULL,
                                 &other, msg);
}

static enum embtier_err make_profiles(struct server *server, struct err_msg *msg)
{
    struct server_parts *const parts = &server->parts;

    return profiles_new(
        &(struct profiles_opts){ .tables = parts->tables,
                                 .memory = parts->transfer_memory,
                                 .memory_bytes = parts->config->checkpoints.transfer_bytes,
                                 .lanes = parts->lanes,
                                 .lane_count = parts->lane_count,
                                 .core_count = parts->config->machine.core_count },
        &parts->profiles, msg);
}

static enum embtier_err make_knobs(struct server *server, struct err_msg *msg)
{
    struct server_parts *const parts = &server->parts;
    uint32_t slabs[TIERS_MAX] = { 0 };
    uint32_t map_slabs = 0;

    server_lane_slabs(parts->config, slabs, &map_slabs);
    return knobs_new(&(struct knobs_opts){ .config = parts->config,
                                           .store = parts->store,
                                           .accounts = parts->accounts,
                                           .checkpoints = parts->checkpoints,
                                           .endurance = parts->endurance,
                                           .groups = parts->groups,
                                           .lanes = parts->lanes,
                                           .lane_count = parts->lane_count,
                                           .arenas = parts->arenas,
                                           .map_slabs = map_slabs,
                                           .checker = "/proc/self/exe",
                                           .check_ms = KNOB_CHECK_MS },
                     &parts->knobs, msg);
}

/* A reload has taken its files. */
static void log_warnings(void *context)
{
    const struct server *const server = context;
    struct access_rules *const rules = access_rules_now(server->parts.access);
    SSL_CTX *const tls = server->certificates ? certificates_get(server->certificates) : NULL;

    file_warnings(server->parts.config, tls, rules, file_warning_log, NULL);
    tls_context_free(tls);
    access_drop_rules(server->parts.access, rules);
}

static enum embtier_err make_access(struct server *server, struct err_msg *msg)
{
    struct server_parts *const parts = &server->parts;

    TRY(access_new(parts->config->access.file, parts->config->doc, &parts->access, msg));
    TRY(reloads_new(&parts->reloads, msg));
    reloads_look(parts->reloads, log_warnings, server);
    if (parts->config->access.file)
        reloads_add(parts->reloads, &(struct reload_part){ .context = parts->access,
                                                           .read = access_read,
                                                           .take = access_take,
                                                           .drop = access_drop });
    TRY(certificates_new(parts->config, &server->certificates, msg));
    if (server->certificates)
        reloads_add(parts->reloads, &(struct reload_part){ .context = server->certificates,
                                                           .read = certificates_read,
                                                           .take = certificates_take,
                                                           .drop = certificates_drop });
    return EMBTIER_OK;
}

/* HTTP tells that the server starts, and opening a store can take minutes. If another server has
 * the store, open_store() says so first. */
static enum embtier_err make_store(struct server *server, const struct server_restore *restore,
                                   struct err_msg *msg)
{
    const struct config *const config = server->parts.config;

    if (!store_is_in_use(config))
        TRY(http_new(config, &server->http, msg));
    TRY(open_store(server, restore->directory_count > 0 ? 0 : restore->id, msg));
    return server->http ? EMBTIER_OK : http_new(config, &server->http, msg);
}

enum embtier_err server_new(const struct config *config, const struct server_restore *restore,
                            struct server **ret_server, struct err_msg *msg)
{
    _cleanup_(server_freep) struct server *server = calloc(1, sizeof(*server));
    _cleanup_(other_checkpoint_close) struct other_checkpoint other = { 0 };

    if (!server)
        return err_set(msg, EMBTIER_NO_MEMORY, "server: out of memory");
    server->signal_fd = -1;
    server->parts.config = config;
    server->parts.transport = &shm_transport;
    server->parts.started_ns = clock_now_ns(&clock_monotonic);
    TRY(signals_open(&server->signal_fd, msg));
    TRY(server_check(config, file_warning_log, NULL, msg));
    if (restore->directory_count > 0)
        TRY(check_other(restore, msg));
    TRY(make_store(server, restore, msg));
    TRY(accounts_new(&server->parts.accounts, msg));
    TRY(row_routes_new(store_bucket_map(server->parts.store), config->lanes.count, &server->routes,
                       msg));
    TRY(make_access(server, msg));
    TRY(tables_new(server->parts.store, server->routes, server->parts.accounts,
                   &server->parts.tables, msg));
    tables_tell_names(server->parts.tables, access_name_table, server->parts.access);
    if (restore->directory_count > 0)
        TRY(other_checkpoint_open(restore->directories, restore->directory_count, restore->id,
                                  tables_catalog(server->parts.tables), &other, msg));
    TRY(request_memory_new(config->lanes.request_bytes, &server->parts.memory, msg));
    TRY(ticket_memory_new(config->lanes.ticket_bytes, pinned_bytes(config), server->parts.accounts,
                          &server->parts.ticket_memory, msg));
    TRY(transfer_memory_new(config->checkpoints.transfer_bytes, server->parts.accounts,
                            &server->parts.transfer_memory, msg));
    TRY(groups_new(config->lanes.group_seconds * UINT64_C(1000000000),
                   config->lanes.request_bytes / 4, server->parts.accounts, &clock_monotonic,
                   &server->parts.groups, msg));
    TRY(make_endurance(server, msg));
    TRY(make_arenas(server, msg));
    TRY(make_arrays(server, msg));
    TRY(make_lanes(server, msg));
    TRY(load_tables(server, msg));
    TRY(make_checkpoints(server, &other, msg));
    TRY(plan_record_open(store_first_directory(server->parts.store), &server->parts.plan_record,
                         msg));
    TRY(make_profiles(server, msg));
    TRY(make_knobs(server, msg));
    store_end_reserve(server->parts.store);
    TRY(endurance_start(server->parts.endurance, msg));
    TRY(control_new(&server->parts, &server->control, msg));
    TRY(rpc_new(config, server->certificates, &server->parts.strangers, control_send,
                server->control, &server->rpc, msg));
    *ret_server = TAKE(server);
    return EMBTIER_OK;
}

/* ---- Serving ---- */

enum embtier_err server_run(struct server *server, struct err_msg *msg)
{
    log_info("ready", "socket=%s lanes=%u tables=%u start_ms=%" PRIu64,
             LOG_QUOTED(server->parts.config->socket.path), server->parts.lane_count,
             tables_count(server->parts.tables),
             (clock_now_ns(&clock_monotonic) - server->parts.started_ns) / 1000000);
    log_info("after a crash, replay tables lose the updates since the newest checkpoint, async "
             "tables lose none, sync tables none even if power fails",
             "checkpoint_seconds=%u replay_tables=%u async_tables=%u sync_tables=%u",
             server->parts.config->checkpoints.interval_seconds,
             tables_count_of(server->parts.tables, EMBTIER_DURABILITY_REPLAY),
             tables_count_of(server->parts.tables, EMBTIER_DURABILITY_ASYNC),
             tables_count_of(server->parts.tables, EMBTIER_DURABILITY_SYNC));
    http_serving(server->http, server->control, server->parts.tables);
    notify_ready();
    return control_run(server->control, server->signal_fd, msg);
}

/* ---- Stopping ---- */

static void free_lanes(struct server *server)
{
    for (uint32_t i = 0; i < server->parts.lane_count; i++)
        lane_stop(server->parts.lanes[i]);
    for (uint32_t i = 0; i < server->parts.lane_count; i++) {
        lane_free(server->parts.lanes[i]);
        server->parts.lanes[i] = NULL;
    }
}

enum embtier_err server_stop(struct server *server, struct err_msg *msg)
{
    enum embtier_err err;

    notify_stopping();
    endurance_release(server->parts.endurance); /* jobs may wait for rows, too */
    http_stopping(server->http);
    rpc_stop(server->rpc);
    control_end_jobs(server->control);
    rpc_free(TAKE(server->rpc));
    profiles_end(server->parts.profiles);
    store_use_reserve(server->parts.store);
    err = stop_write_back(&server->parts, server->signal_fd, msg);
    free_lanes(server);
    control_free(TAKE(server->control));
    if (server->parts.store) {
        struct err_msg close_msg = { { 0 } };
        /* An end that lost rows must not look clean to the next start. */
        const enum embtier_err close_err =
            store_shut(server->parts.store, err == EMBTIER_OK, &close_msg);

        endurance_end(server->parts.endurance);
        store_free(TAKE(server->parts.store));
        if (err == EMBTIER_OK && close_err != EMBTIER_OK)
            err = err_set(msg, close_err, "%s", close_msg.text);
    }
    if (err == EMBTIER_OK)
        log_info("stopped; all rows are on SSD", "uptime_ms=%" PRIu64,
                 (clock_now_ns(&clock_monotonic) - server->parts.started_ns) / 1000000);
    return err;
}

void server_free(struct server *server)
{
    if (!server)
        return;
    http_stopping(server->http);
    rpc_stop(server->rpc);
    control_end_jobs(server->control);
    http_free(server->http);
    rpc_free(server->rpc);
    profiles_end(server->parts.profiles);
    free_lanes(server);
    control_free(server->control);
    knobs_free(server->parts.knobs);
    profiles_free(server->parts.profiles);
    free(server->parts.lanes);
    endurance_free(server->parts.endurance);
    plan_record_free(server->parts.plan_record);
    checkpoints_free(server->parts.checkpoints);
    tables_free(server->parts.tables);
    row_routes_free(server->routes);
    table_arrays_free(server->parts.arrays);
    for (uint32_t t = 0; t < TIERS_MAX; t++)
        arena_free(server->parts.arenas[t]);
    groups_free(server->parts.groups);
    request_memory_free(server->parts.memory);
    ticket_memory_free(server->parts.ticket_memory);
    transfer_memory_free(server->parts.transfer_memory);
    accounts_free(server->parts.accounts);
    reloads_free(server->parts.reloads);
    certificates_free(server->certificates);
    access_free(server->parts.access);
    store_free(server->parts.store);
    closep(&server->signal_fd);
    free(server);
}
