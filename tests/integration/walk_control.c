/* SPDX-License-Identifier: Apache-2.0 */
/* Control calls of the random walk, along with the requests of all other steps: checkpoints, scans,
 * loads, groups, profiles, and lists of jobs and accounts.
 *
 * They concern the trained table (walk_training.c), whose rows are known to the bit at any time.
 * A checkpoint has the rows of its moment, for a scan and for a restore. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "placement/profile/profile_file.h"
#include "proto/control.pb-c.h"
#include "proto/frame.h"
#include "tests/integration/walk.h"

#define MADE_TABLE    "walk.made"
#define KEPT          3 /* checkpoints, at most */
#define BUFFER_BYTES  (64 * KIB)
#define CANCELLED_MIB 16

/* ---- The kinds of requests that were sent ---- */

/* The linker replaces the library's calls by the wrapper of this function. */
enum embtier_err __real_frame_encode_request(const Embtier__Request *request, uint8_t **ret_bytes,
                                             size_t *ret_count);
enum embtier_err __wrap_frame_encode_request(const Embtier__Request *request, uint8_t **ret_bytes,
                                             size_t *ret_count);

#define BODIES_MAX 1024 /* all numbers in control.proto are below */
static _Atomic uint64_t sent[BODIES_MAX];

enum embtier_err __wrap_frame_encode_request(const Embtier__Request *request, uint8_t **ret_bytes,
                                             size_t *ret_count)
{
    if ((uint32_t)request->body_case < BODIES_MAX)
        sent[request->body_case]++;
    return __real_frame_encode_request(request, ret_bytes, ret_count);
}

void walk_check_requests(struct walk *walk)
{
    const ProtobufCMessageDescriptor *const kinds = &embtier__request__descriptor;

    for (unsigned f = 0; f < kinds->n_fields; f++) {
        const ProtobufCFieldDescriptor *const kind = &kinds->fields[f];

        if (kind->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
            WALK_CHECK(walk, kind->id < BODIES_MAX && sent[kind->id] > 0,
                       "the walk never sent a request %s", kind->name);
    }
}

/* ---- Checkpoints ---- */

static void make_checkpoint(struct walk *walk)
{
    struct embtier_checkpoint_options options = EMBTIER_CHECKPOINT_OPTIONS_INIT;
    struct embtier_checkpoint_list *list;
    const struct embtier_checkpoint *made;

    options.has_step = 1;
    options.step = walk->train_step;
    options.metadata = "{\"walk\": true}";
    options.keep = KEPT;
    walk_expect(walk, walk->admin,
                embtier_checkpoint_create(walk->admin, &options, NULL, NULL, &list), EMBTIER_OK,
                "make a checkpoint");
    made = embtier_checkpoint_list_at(list, 0);
    WALK_CHECK(walk,
               made->id > walk->checkpoint && made->has_step && made->step == walk->train_step &&
                   strcmp(made->metadata, options.metadata) == 0,
               "checkpoint %" PRIu64 " is described as another than it was made", made->id);
    walk->checkpoint = made->id;
    memcpy(walk->checkpointed, walk->trained, sizeof(walk->trained));
    embtier_checkpoint_list_free(list);
}

static const struct embtier_checkpoint *checkpoint_of(const struct walk *walk,
                                                      const struct embtier_checkpoint_list *list)
{
    for (size_t i = 0; i < embtier_checkpoint_list_count(list); i++)
        if (embtier_checkpoint_list_at(list, i)->id == walk->checkpoint)
            return embtier_checkpoint_list_at(list, i);
    return NULL;
}

/* Deletes the oldest checkpoint, unless it is the walk's newest one. Over a network the walk is no
 * user of the server's machine, and the server's own checkpoints are not its to delete. */
static void delete_oldest(struct walk *walk, const struct embtier_checkpoint_list *list)
{
    const struct embtier_checkpoint *const oldest = embtier_checkpoint_list_at(list, 0);
    const struct embtier_checkpoint *const own = checkpoint_of(walk, list);
    const bool may = own->uid == oldest->uid || own->uid != UINT32_MAX;

    if (oldest != own)
        walk_expect(walk, walk->admin, embtier_checkpoint_delete(walk->admin, oldest->id),
                    may ? EMBTIER_OK : EMBTIER_PERMISSION, "delete a checkpoint");
}

/* Checks the list of all checkpoints, the newest of which is the walk's. */
static void list_checkpoints(struct walk *walk)
{
    struct embtier_checkpoint_list *list;
    uint64_t last = 0;
    size_t count;

    walk_expect(walk, walk->admin, embtier_checkpoint_list(walk->admin, &list), EMBTIER_OK,
                "list checkpoints");
    count = embtier_checkpoint_list_count(list);
    for (size_t i = 0; i < count; i++) {
        const uint64_t id = embtier_checkpoint_list_at(list, i)->id;

        WALK_CHECK(walk, id > last, "checkpoints are not listed by their numbers");
        last = id;
    }
    WALK_CHECK(walk, last >= walk->checkpoint, "the newest checkpoint is not listed");
    if (walk_chance(walk, 30))
        delete_oldest(walk, list);
    walk_expect(walk, walk->admin, embtier_checkpoint_delete(walk->admin, UINT64_MAX),
                EMBTIER_NOT_FOUND, "delete no checkpoint");
    embtier_checkpoint_list_free(list);
}

static void show_checkpoint(struct walk *walk)
{
    struct embtier_checkpoint_list *list;
    const struct embtier_checkpoint *shown;
    bool found = false;

    walk_expect(walk, walk->admin, embtier_checkpoint_show(walk->admin, walk->checkpoint, &list),
                EMBTIER_OK, "show a checkpoint");
    shown = embtier_checkpoint_list_at(list, 0);
    for (uint32_t t = 0; t < shown->table_count; t++)
        found |= strcmp(shown->tables[t], WALK_TRAINED_TABLE) == 0;
    WALK_CHECK(walk, found, "checkpoint %" PRIu64 " has no table that is trained", shown->id);
    embtier_checkpoint_list_free(list);
    walk_expect(walk, walk->admin,
                embtier_checkpoint_verify(walk->admin, walk->checkpoint, NULL, NULL), EMBTIER_OK,
                "verify a checkpoint");
}

static void drop_made(struct walk *walk)
{
    walk_expect(walk, walk->admin, embtier_table_drop(walk->admin, MADE_TABLE, NULL, NULL),
                EMBTIER_OK, "drop a table that was made");
}

static void restore_checkpoint(struct walk *walk, struct walk_session *session)
{
    static const char *const name = WALK_TRAINED_TABLE;
    struct embtier_table_list *list;

    walk_expect(walk, walk->admin,
                embtier_checkpoint_restore(walk->admin, walk->checkpoint, &name, 1, MADE_TABLE,
                                           NULL, NULL, &list),
                EMBTIER_OK, "restore a table");
    walk->last_table_id = MAX(walk->last_table_id, embtier_table_list_at(list, 0)->table_id);
    embtier_table_list_free(list);
    walk_check_rows_of(walk, session, MADE_TABLE, walk->checkpointed);
    drop_made(walk);
}

/* ---- Scans and loads ---- */

static void scan_checkpoint(struct walk *walk, struct walk_session *session)
{
    const struct embtier_scan_options options = { .struct_bytes = sizeof(options),
                                                  .checkpoint = walk->checkpoint,
                                                  .all_rows = 1,
                                                  .buffer_bytes = BUFFER_BYTES };
    struct embtier *const server = session->server;
    struct embtier_scan *scan;
    struct embtier_scan_rows rows;
    enum embtier_err err;
    uint64_t count = 0;

    while ((err = embtier_scan_open(server, WALK_TRAINED_TABLE, &options, &scan)) ==
           EMBTIER_ARENA_FULL)
        walk_finish(walk, session, 0);
    walk_expect(walk, server, err, EMBTIER_OK, "open a scan");
    for (;;) {
        walk_expect(walk, server, embtier_scan_next(scan, &rows), EMBTIER_OK, "scan");
        if (rows.count == 0)
            break;
        WALK_CHECK(walk, rows.first_id == count, "a scan has left out rows");
        for (uint32_t i = 0; i < rows.count && count < WALK_TRAINED_ROWS; i++, count++)
            WALK_CHECK(walk,
                       *(const float *)((const uint8_t *)rows.rows + (size_t)i * rows.row_bytes) ==
                           walk->checkpointed[count],
                       "row %" PRIu64 " of a scan is not what it was", count);
    }
    WALK_CHECK(walk, count == WALK_TRAINED_ROWS, "a scan had %" PRIu64 " rows", count);
    embtier_scan_close(scan);
}

/* Loads a table with rows like the trained ones. */
static void load_table(struct walk *walk, struct walk_session *session, bool gives_up)
{
    const struct embtier_table_options options = walk_trained_options(MADE_TABLE);
    struct embtier *const server = session->server;
    struct embtier_load_buffer buffer;
    struct embtier_table *table;
    struct embtier_load *load;
    enum embtier_err err;
    uint32_t id = 0;
    uint32_t count = 0;

    while ((err = embtier_load_open(server, &options, 0, BUFFER_BYTES, &load)) ==
           EMBTIER_ARENA_FULL)
        walk_finish(walk, session, 0);
    walk_expect(walk, server, err, EMBTIER_OK, "open a load");
    buffer = embtier_load_buffer(load);
    while (id < WALK_TRAINED_ROWS) {
        for (count = 0; count < buffer.capacity && id < WALK_TRAINED_ROWS; count++, id++) {
            float *const row = (float *)((uint8_t *)buffer.rows + (size_t)count * buffer.row_bytes);

            buffer.ids[count] = id;
            for (uint32_t c = 0; c < buffer.row_bytes / sizeof(float); c++)
                row[c] = walk->trained[id];
        }
        walk_expect(walk, server, embtier_load_rows(load, count), EMBTIER_OK, "load rows");
    }
    if (!gives_up) {
        walk_expect(walk, server, embtier_load_end(load, NULL, NULL), EMBTIER_OK, "end a load");
        embtier_load_close(load);
        walk_check_rows_of(walk, session, MADE_TABLE, walk->trained);
        drop_made(walk);
        return;
    }
    embtier_load_close(load);
    walk_expect(walk, server, embtier_table_open(server, MADE_TABLE, &table), EMBTIER_NO_TABLE,
                "open a table that was not loaded");
}

/* ---- Groups, jobs and accounts ---- */

#define LEFT_GROUPS_MAX 8

/* A session is a member until it leaves the group, or ends. */
static void join_group(struct walk *walk, struct walk_session *session)
{
    struct walk_session *const other = &walk->sessions[(session->number + 1) % WALK_SESSIONS];
    struct embtier_group_options options = EMBTIER_GROUP_OPTIONS_INIT;
    struct embtier_group *mine = NULL, *group;
    char name[32];

    snprintf(name, sizeof(name), "walk.%u", session->number);
    options.name = name;
    options.size = 2;
    options.step = 7;
    walk_expect(walk, session->server, embtier_group_join(session->server, &options, &mine),
                session->has_joined ? EMBTIER_EXISTS : EMBTIER_OK, "join a group");
    session->has_joined = true;
    options.size = 3;
    walk_expect(walk, other->server, embtier_group_join(other->server, &options, &group),
                EMBTIER_MISMATCH, "join a group of another size");
    if (!mine || session->left_groups == LEFT_GROUPS_MAX)
        return;
    for (uint32_t times = 0; times < 2; times++)
        walk_expect(walk, session->server, embtier_group_leave(mine), EMBTIER_OK, "leave a group");
    embtier_group_free(mine);
    session->left_groups++;
    session->has_joined = false;
}

struct making {
    struct walk *walk;
    enum embtier_err err;
    _Atomic bool is_over;
};

/* Makes a table that takes long enough for the job to be seen, most often. */
static void *make_main(void *context)
{
    struct making *const making = context;
    struct embtier_table_options options = EMBTIER_TABLE_OPTIONS_INIT;
    struct embtier_table *table;

    options.name = MADE_TABLE;
    options.dim = 256;
    options.rows = CANCELLED_MIB * 1024;
    options.eager = 1;
    making->err = embtier_table_create(making->walk->admin, &options, &table);
    if (making->err == EMBTIER_OK)
        embtier_table_close(table);
    making->is_over = true;
    return NULL;
}

/* Cancels, from a session, the job of the admin's connection. */
static void cancel_job(struct walk *walk, struct walk_session *session)
{
    struct making making = { .walk = walk };
    struct embtier_job_list *list;
    pthread_t thread;
    bool is_cancelled = false;

    WALK_CHECK(walk, pthread_create(&thread, NULL, make_main, &making) == 0, "no thread");
    while (!making.is_over && !is_cancelled) {
        uint64_t last = 0;

        walk_expect(walk, session->server, embtier_job_list(session->server, &list), EMBTIER_OK,
                    "list jobs");
        for (size_t i = 0; i < embtier_job_list_count(list); i++) {
            const struct embtier_job *const job = embtier_job_list_at(list, i);

            WALK_CHECK(walk, job->id > last && (job->total == 0 || job->done <= job->total),
                       "job %" PRIu64 " cannot be", job->id);
            last = job->id;
            if (strcmp(job->what, MADE_TABLE) == 0 && !job->is_own)
                is_cancelled |= embtier_job_cancel(session->server, job->id, NULL) == EMBTIER_OK;
        }
        embtier_job_list_free(list);
    }
    pthread_join(thread, NULL);
    WALK_CHECK(walk, making.err == EMBTIER_OK || making.err == EMBTIER_CANCELLED,
               "a creation that was to be cancelled: error %d", (int)making.err);
    if (making.err == EMBTIER_OK)
        drop_made(walk);
    walk_expect(walk, session->server, embtier_job_cancel(session->server, UINT64_MAX, NULL),
                EMBTIER_NOT_FOUND, "cancel no job");
}

static void list_accounts(struct walk *walk)
{
    struct embtier_account_list *list;
    uint64_t sessions = 0;

    walk_expect(walk, walk->admin, embtier_account_list(walk->admin, &list), EMBTIER_OK,
                "list accounts");
    for (size_t i = 0; i < embtier_account_list_count(list); i++) {
        const struct embtier_account *const account = embtier_account_list_at(list, i);

        if (strcmp(account->name, "sessions") == 0)
            sessions += account->used;
    }
    WALK_CHECK(walk, sessions > WALK_SESSIONS, "accounts have %" PRIu64 " sessions", sessions);
    embtier_account_list_free(list);
}

/* This server has no access file, so any client may ask for it, and nothing changes. */
static void reload(struct walk *walk, struct walk_session *session)
{
    uint32_t users = UINT32_MAX;

    walk_expect(walk, session->server, embtier_reload(session->server, &users), EMBTIER_OK,
                "reload");
    WALK_CHECK(walk, users == 0, "an access file has %" PRIu32 " users", users);
    WALK_CHECK(walk, embtier_user(session->server)[0] == '\0', "the client is user '%s'",
               embtier_user(session->server));
}

/* ---- Knobs ---- */

/* Sets a knob to one of @count values, or to the one that it has, while lanes and jobs are at work.
 */
static void set_knob(struct walk *walk, struct walk_session *session, const char *name,
                     const char *const *values, uint32_t count)
{
    struct embtier_knob_options options = EMBTIER_KNOB_OPTIONS_INIT;
    struct embtier_knob_change *change = NULL;
    struct embtier_knob_list *list = NULL;
    const char *old, *value;

    options.name = name;
    walk_expect(walk, session->server, embtier_knob_list(session->server, &options, &list),
                EMBTIER_OK, "list a knob");
    WALK_CHECK(walk, embtier_knob_list_count(list) == 1, "%zu knobs",
               embtier_knob_list_count(list));
    old = embtier_knob_list_at(list, 0)->value;
    value = count > 0 ? values[walk_pick(walk, count)] : old;
    walk_expect(walk, session->server, embtier_knob_set(session->server, name, value, 0, &change),
                EMBTIER_OK, "set a knob");
    WALK_CHECK(walk, strcmp(embtier_knob_change_old(change), old) == 0, "%s was %s and not %s",
               name, embtier_knob_change_old(change), old);
    WALK_CHECK(walk, strcmp(embtier_knob_change_knob(change)->value, value) == 0,
               "%s is %s and not %s", name, embtier_knob_change_knob(change)->value, value);
    embtier_knob_change_free(change);
    embtier_knob_list_free(list);
}

/* Reads and compactions are under way while their threads and triggers change. */
void walk_set_knob(struct walk *walk, struct walk_session *session)
{
    static const char *const readers[] = { "1", "2", "3", "5" };
    static const char *const files[] = { "2", "3", "4", "16" };

    if (walk_chance(walk, 50))
        set_knob(walk, session, "lanes.readers_per_lane", readers, ARRAY_LEN(readers));
    else
        set_knob(walk, session, "rocksdb.compaction_trigger_files", files, ARRAY_LEN(files));
}

/* Each lane has as many whole slabs of 2 MiB, beside the part for arrays. */
static uint64_t mib_in_force(const struct walk *walk, uint64_t wanted_mib)
{
    const uint64_t lane_slabs = (wanted_mib - WALK_ARRAY_MIB) / 2 / walk->lanes_now;

    return WALK_ARRAY_MIB + lane_slabs * 2 * walk->lanes_now;
}

/* A tier has twice its size, or its old one again, while its rows are read, written and pinned. */
static void resize_tier(struct walk *walk, struct walk_session *session)
{
    const uint32_t tier = walk_chance(walk, 50);
    struct embtier_knob_options options = EMBTIER_KNOB_OPTIONS_INIT;
    struct embtier_knob_change *change = NULL;
    struct embtier_knob_list *list = NULL;
    char name[32], value[32];
    bool shrinks;
    uint64_t mib, wanted_mib;

    snprintf(name, sizeof(name), "cache.tiers[%" PRIu32 "].bytes", tier);
    options.name = name;
    walk_expect(walk, session->server, embtier_knob_list(session->server, &options, &list),
                EMBTIER_OK, "list a tier's size");
    mib = strtoull(embtier_knob_list_at(list, 0)->value, NULL, 10);
    if (walk->tier_mib[tier] == 0)
        walk->tier_mib[tier] = mib;
    shrinks = mib > walk->tier_mib[tier];
    wanted_mib = walk->tier_mib[tier] * (shrinks ? 1 : 2);
    snprintf(value, sizeof(value), "%" PRIu64 "MiB", wanted_mib);
    embtier_knob_list_free(list);
    if (embtier_knob_set(session->server, name, value, 0, &change) == EMBTIER_BUSY && shrinks)
        return; /* pinned rows need more */
    WALK_CHECK(walk, change, "%s is not %s: %s", name, value, embtier_message(session->server));
    snprintf(value, sizeof(value), "%" PRIu64 "MiB", mib_in_force(walk, wanted_mib));
    WALK_CHECK(walk, strcmp(embtier_knob_change_knob(change)->value, value) == 0,
               "%s is %s, and not %s, the whole slabs of %" PRIu64 "MiB", name,
               embtier_knob_change_knob(change)->value, value, wanted_mib);
    embtier_knob_change_free(change);
}

/* ---- Profiles ---- */

/* However lookups, drops and restarts go on while it is made, no number contradicts another. */
static void load_profile(struct walk *walk, const char *path)
{
    _cleanup_(measured_profile_freep) struct measured_profile *measured = NULL;
    struct err_msg msg = { { 0 } };

    WALK_CHECK(walk, profile_file_load(path, &measured, &msg) == EMBTIER_OK,
               "a profile was loaded: %s", msg.text);
}

/* Begins a profile, and leaves it, or saves and ends it or the one that was begun. A restart
 * forgets it. Until the next lookup it has no results. */
static void profile(struct walk *walk)
{
    const enum embtier_err begun = embtier_profile_start(walk->admin, 0, NULL);
    struct embtier_profile_info info;
    enum embtier_err err;
    char path[256];

    WALK_CHECK(walk, begun == EMBTIER_OK || begun == EMBTIER_BUSY, "a profile was begun: error %d",
               (int)begun);
    if (begun == EMBTIER_OK && walk_chance(walk, 50))
        return;
    snprintf(path, sizeof(path), "%s/walk.profile", walk->harness.directory);
    err = embtier_profile_save(walk->admin, path);
    WALK_CHECK(walk, err == EMBTIER_OK || err == EMBTIER_NOT_FOUND,
               "a profile was saved: error %d: %s", (int)err, embtier_message(walk->admin));
    if (err == EMBTIER_OK)
        load_profile(walk, path);
    (void)unlink(path);
    walk_expect(walk, walk->admin, embtier_profile_stop(walk->admin, &info), EMBTIER_OK,
                "end a profile");
    WALK_CHECK(walk, !info.runs && (info.lookups > 0 || err == EMBTIER_NOT_FOUND),
               "a profile of %" PRIu64 " lookups was saved: error %d", info.lookups, (int)err);
}

/* ---- Plans ---- */

/* Puts the next plan in force, unless it is given up: another one may begin when that has happened,
 * and neither a second client at the same time nor an older plan may. */
static void apply_plan(struct walk *walk, struct walk_session *session)
{
    struct embtier_plan_info before, after;
    uint64_t hash;

    walk_expect(walk, walk->admin, embtier_plan_show(walk->admin, &before), EMBTIER_OK,
                "show the plan");
    hash = before.hash + 1;
    walk_expect(walk, walk->admin,
                embtier_plan_begin(walk->admin, before.generation + 1, hash, 3, NULL), EMBTIER_OK,
                "begin a plan");
    walk_expect(walk, session->server,
                embtier_plan_begin(session->server, before.generation + 2, hash, 0, NULL),
                EMBTIER_BUSY, "begin a plan beside another");
    walk_expect(walk, session->server, embtier_plan_end(session->server), EMBTIER_INVALID,
                "end another's plan");
    if (walk_chance(walk, 50))
        return; /* this connection may begin it again */
    walk_expect(walk, walk->admin, embtier_plan_end(walk->admin), EMBTIER_OK, "end a plan");
    walk_expect(walk, session->server,
                embtier_plan_begin(session->server, before.generation + 1, hash + 1, 0, NULL),
                EMBTIER_MISMATCH, "begin another plan of the same generation");
    walk_expect(walk, session->server, embtier_plan_show(session->server, &after), EMBTIER_OK,
                "show the plan");
    WALK_CHECK(walk,
               after.generation == before.generation + 1 && after.hash == hash &&
                   after.applied_ms >= before.applied_ms && after.applying_pid == 0 &&
                   after.tables == 3,
               "plan %" PRIu64 " is in force after %" PRIu64, after.generation, before.generation);
}

/* The walk's own sessions are listed, and none but theirs can be meant by their numbers. */
static void list_sessions(struct walk *walk, struct walk_session *session)
{
    struct embtier_session_list *list;
    uint32_t own = 0;

    walk_expect(walk, session->server, embtier_session_list(session->server, &list), EMBTIER_OK,
                "list sessions");
    for (size_t i = 0; i < embtier_session_list_count(list); i++) {
        const struct embtier_session *const listed = embtier_session_list_at(list, i);

        if (!listed->is_own)
            continue;
        own++;
        walk_expect(walk, session->server, embtier_session_end(session->server, listed->number),
                    EMBTIER_INVALID, "end one's own session");
    }
    WALK_CHECK(walk, own == 1, "%u of the listed sessions are the asker's own", own);
    embtier_session_list_free(list);
    walk_expect(walk, session->server, embtier_session_end(session->server, UINT64_MAX),
                EMBTIER_NOT_FOUND, "end a session that does not exist");
}

/* Compaction is put off and goes on while rows are written; all shards may be due, or none. */
static void compact(struct walk *walk)
{
    struct embtier_compaction_list *list;

    walk_expect(walk, walk->admin, embtier_compaction_put_off(walk->admin, 1), EMBTIER_OK,
                "put compaction off");
    if (walk_chance(walk, 50))
        walk_expect(walk, walk->admin, embtier_compaction_rewrite(walk->admin, NULL, NULL),
                    EMBTIER_OK, "rewrite all shards");
    else
        walk_expect(walk, walk->admin, embtier_compaction_run(walk->admin, NULL, NULL), EMBTIER_OK,
                    "compact all shards");
    walk_expect(walk, walk->admin, embtier_compaction_show(walk->admin, &list), EMBTIER_OK,
                "look at compaction");
    WALK_CHECK(walk,
               embtier_compaction_facts(list)->is_put_off &&
                   embtier_compaction_list_count(list) == embtier_compaction_facts(list)->databases,
               "compaction is described as another than it is");
    embtier_compaction_list_free(list);
    walk_expect(walk, walk->admin, embtier_compaction_put_off(walk->admin, 0), EMBTIER_OK,
                "let compaction go on");
}

void walk_control(struct walk *walk, struct walk_session *session)
{
    const uint64_t number = walk->controls++; /* in turn, so that each kind comes */

    if (walk->checkpoint == 0 || walk_chance(walk, 15))
        make_checkpoint(walk);
    switch (number % 10) {
    case 0:
        list_checkpoints(walk);
        break;
    case 1:
        show_checkpoint(walk);
        break;
    case 2:
        restore_checkpoint(walk, session);
        break;
    case 3:
        scan_checkpoint(walk, session);
        break;
    case 4:
        load_table(walk, session, number / 10 % 3 == 1);
        break;
    case 5:
        join_group(walk, session);
        break;
    case 6:
        profile(walk);
        break;
    case 7:
        apply_plan(walk, session);
        break;
    case 8:
        walk_reshard(walk, 1 + (uint32_t)(walk->controls % 7));
        break;
    default:
        list_accounts(walk);
        list_sessions(walk, session);
        reload(walk, session);
        compact(walk);
        set_knob(walk, session, "lanes.group_seconds", NULL, 0);
        resize_tier(walk, session);
        cancel_job(walk, session);
    }
}
