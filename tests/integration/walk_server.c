/* SPDX-License-Identifier: Apache-2.0 */
/* The server of the random walk: its configuration, and restarts with other lanes. */
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "tests/integration/walk.h"

void walk_configure(struct walk *walk, uint32_t lanes)
{
    /* The index takes part of the first tier. With one slab left, the cache holds rows of one
     * length only. */
    const uint32_t dram_mib = lanes * (4 + 2 * walk_pick(walk, 1 + walk_pick(walk, 3)));
    const uint32_t pmem_mib = lanes * (2 + 2 * walk_pick(walk, 2));
    const struct harness *const harness = &walk->harness;
    /* Write buffers are for the shards of four directories, with those that were removed. */
    char directories[256], yaml[1536];

    walk_name_directories(walk, directories, sizeof(directories));
    snprintf(yaml, sizeof(yaml),
             "data:\n  directories: [%s]\n  shards_per_directory: %u\n"
             "lanes:\n  count: %u\n  readers_per_lane: 2\n  request_bytes: 16MiB\n"
             "  write_queue_bytes: 1MiB\n"
             "cache:\n  tiers:\n"
             "    - {name: dram, kind: dram, bytes: %uMiB, array_bytes: %uMiB}\n"
             "    - {name: pmem, kind: file, path: %s, bytes: %uMiB, array_bytes: %uMiB}\n"
             "rocksdb:\n  memtable_bytes: 8MiB\n  metadata_cache_bytes: 2MiB\n"
             "socket:\n  path: %s/socket\n  max_batch_rows: %u\n%s",
             directories, WALK_LANES_MAX, lanes, dram_mib + WALK_ARRAY_MIB, WALK_ARRAY_MIB,
             harness->directory, pmem_mib + WALK_ARRAY_MIB, WALK_ARRAY_MIB, harness->directory,
             WALK_BATCH_ROWS, harness->rpc_yaml);
    memset(walk->tier_mib, 0, sizeof(walk->tier_mib));
    harness_configure(harness, yaml);
}

/* Without a server every call says so, and answers that came before count. */
static void see_server_gone(struct walk *walk, struct walk_session *session)
{
    struct embtier_table *table;

    session->has_joined = false;
    session->left_groups = 0;
    walk_drain(walk, session);
    walk_expect(walk, session->server, embtier_table_open(session->server, "walk.0", &table),
                EMBTIER_DISCONNECTED, "open without a server");
    if (session->spare)
        walk_expect(walk, session->server,
                    embtier_submit(session->spare->batch, session->spare->op), EMBTIER_DISCONNECTED,
                    "submit without a server");
    walk_expect(walk, session->server, embtier_reconnect(session->server), EMBTIER_UNREACHABLE,
                "reconnect without a server");
}

/* A kept batch stays at its place, and keeps its rows. */
static void reconnect(struct walk *walk, struct walk_session *session)
{
    const struct walk_request *const spare = session->spare;
    size_t bytes = 0;
    const uint8_t *const rows =
        spare && spare->part_count > 0 ? walk_answer(spare, 0, &bytes) : NULL;
    const uint8_t first = bytes > 0 ? rows[0] : 0;

    walk_expect(walk, session->server, embtier_reconnect(session->server), EMBTIER_OK, "reconnect");
    WALK_CHECK(walk, bytes == 0 || (walk_answer(spare, 0, &bytes) == rows && rows[0] == first),
               "a reconnect has moved or changed a batch");
}

/* The handle of a dropped table comes back as that of the table that has its name now, if dim
 * and dtype fit. */
static void see_server_back(struct walk *walk, struct walk_session *session)
{
    if (session->stale) {
        const struct embtier_table_info *const old = embtier_table_info(session->stale);
        bool fits = true;

        for (uint32_t t = 0; t < WALK_TABLES; t++)
            if (walk->tables[t] && strcmp(walk->tables[t]->spec.name, old->name) == 0)
                fits = walk->tables[t]->spec.dim == old->dim &&
                       walk->tables[t]->spec.dtype == old->dtype;
        walk_expect(walk, session->server, embtier_reconnect(session->server),
                    fits ? EMBTIER_OK : EMBTIER_MISMATCH, "reconnect with an old handle");
        embtier_table_close(TAKE(session->stale));
    }
    reconnect(walk, session);
    for (uint32_t t = 0; t < WALK_TABLES; t++)
        if (session->handles[t])
            walk_check_info(walk, walk->tables[t], embtier_table_info(session->handles[t]));
}

void walk_restart(struct walk *walk, uint32_t lanes)
{
    harness_stop(&walk->harness);
    for (uint32_t s = 0; s < WALK_SESSIONS; s++)
        see_server_gone(walk, &walk->sessions[s]);
    walk_configure(walk, lanes);
    harness_start(&walk->harness);
    walk->lanes_now = lanes;
    walk_expect(walk, walk->admin, embtier_reconnect(walk->admin), EMBTIER_OK, "reconnect");
    for (uint32_t s = 0; s < WALK_SESSIONS; s++)
        see_server_back(walk, &walk->sessions[s]);
    walk->totals = (struct walk_totals){ 0 };
    for (uint32_t t = 0; t < WALK_TABLES; t++)
        if (walk->tables[t])
            walk->tables[t]->set_rows = walk->tables[t]->maybe_set_rows = 0;
}
