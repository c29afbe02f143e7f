/* SPDX-License-Identifier: Apache-2.0 */
/* Every row is at any time as a simple model says, whatever clients do.
 *
 * A random walk over all that a client can do. Tables of all kinds come and go, some under a
 * name that another had. Three sessions read and write their rows in batches of several parts,
 * or pool bags of them, with many requests in flight. They train, with prefetches, tickets and
 * pushes. Checkpoints are made, listed, scanned and restored, tables loaded, groups joined and
 * jobs ended. Rows move to other shards, and data directories are added and removed. Some requests
 * and calls must be refused. Sessions leave with requests in flight, and the server restarts with
 * other lanes. The cache has a few MiB a lane, in DRAM and in a file that stands for persistent
 * memory. The write queue and the write buffers are tiny. So at the same time there are rows in all
 * places, on their way, being read and waited for. walk_model.h says how each row must be.
 *
 * EMBTIER_TEST_STEPS is the number of steps (a request is one). EMBTIER_TEST_SEED is their seed,
 * which every run prints. The walk's decisions depend only on the seed and the lanes
 * (EMBTIER_TEST_LANES). The timing of the server differs in each run. */
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/macros.h"
#include "proto/ops.h"
#include "tests/integration/walk.h"
#include "tests/seed.h"

#define STEPS           100000
#define STEPS_TO_BE_ALL STEPS /* a shorter walk need not come to every place */
#define PROGRESS_STEPS  100000
#define CACHE_MIB       12 /* per lane, at most */

/* The places where a request may find a row: sources of metric lookup_rows, a read under way,
 * and no place in the cache, since nothing could leave it. */
static const char *const places[WALK_PLACES] = {
    "dram", "pmem", "array", "write_queue", "ssd", "initial", "a read under way", "no place",
};
#define SOURCES (WALK_PLACES - 2)

/* ---- The server ---- */

static void connect_admin(struct walk *walk)
{
    struct embtier_connect_options options = EMBTIER_CONNECT_OPTIONS_INIT;

    options.socket_path = walk->harness.socket;
    options.arena_bytes = 0;
    options.timeout_ms = WALK_TIMEOUT_MS;
    walk_expect(walk, NULL, embtier_connect(&options, &walk->admin), EMBTIER_OK, "connect");
}

/* ---- Status ---- */

static double metric(struct walk *walk, const struct embtier_status *status, const char *name,
                     const char *label_value)
{
    for (size_t i = 0; i < embtier_status_count(status); i++) {
        const struct embtier_metric *const m = embtier_status_at(status, i);

        if (strcmp(m->name, name) == 0 && strcmp(m->label_value, label_value) == 0)
            return m->value;
    }
    walk_fail(walk, "there is no metric %s %s", name, label_value);
}

static void check_between(struct walk *walk, const char *what, double value, uint64_t least,
                          uint64_t maybe_more)
{
    WALK_CHECK(walk, value >= (double)least && value <= (double)(least + maybe_more),
               "%s is %.0f, must be %" PRIu64 " to %" PRIu64, what, value, least,
               least + maybe_more);
}

static double sum_lookups(struct walk *walk, const struct embtier_status *status)
{
    double sum = 0;

    for (size_t i = 0; i < SOURCES; i++)
        sum += metric(walk, status, "lookup_rows", places[i]);
    return sum;
}

static void note_places(struct walk *walk, const struct embtier_status *status)
{
    for (size_t i = 0; i < SOURCES; i++)
        walk->place_rows[i] += (uint64_t)metric(walk, status, "lookup_rows", places[i]);
    walk->place_rows[SOURCES] += (uint64_t)metric(walk, status, "shared_reads", "");
    walk->place_rows[SOURCES + 1] += (uint64_t)metric(walk, status, "cache_refused_rows", "");
}

static uint32_t count_tables(const struct walk *walk)
{
    uint32_t count = 0;

    for (uint32_t t = 0; t < WALK_TABLES; t++)
        count += walk->tables[t] != NULL;
    return count;
}

/* The server ends a session only when its last request is done, so that no SET comes late. */
static void await_sessions(struct walk *walk, uint32_t walkers)
{
    const uint64_t begin_ns = clock_now_ns(&clock_monotonic);
    const uint32_t count = 1 + walkers * harness_connections(&walk->harness); /* and the admin's */

    for (;;) {
        struct embtier_status *status;
        double sessions;

        walk_expect(walk, walk->admin, embtier_status(walk->admin, &status), EMBTIER_OK, "status");
        sessions = metric(walk, status, "sessions", "");
        embtier_status_free(status);
        if (sessions == count)
            return;
        WALK_CHECK(walk,
                   clock_now_ns(&clock_monotonic) - begin_ns < WALK_TIMEOUT_MS * UINT64_C(1000000),
                   "there are %.0f sessions, not %u", sessions, count);
        usleep(200);
    }
}

/* Checks that the server counted the walk's requests. Nothing is in flight. */
static void check_status(struct walk *walk, bool last)
{
    const struct walk_totals *const totals = &walk->totals;
    struct embtier_status *status;
    uint64_t got, maybe_got;

    for (uint32_t s = 0; s < WALK_SESSIONS; s++)
        walk_drain(walk, &walk->sessions[s]);
    await_sessions(walk, WALK_SESSIONS); /* that of harness_start() may not have ended yet */
    got = totals->rows[EMBTIER_GET] + totals->rows[EMBTIER_GET_POOLED];
    maybe_got = totals->maybe_rows[EMBTIER_GET] + totals->maybe_rows[EMBTIER_GET_POOLED];
    walk_expect(walk, walk->admin, embtier_status(walk->admin, &status), EMBTIER_OK, "status");
    check_between(walk, "tables", metric(walk, status, "tables", ""),
                  count_tables(walk) + 1 /* the trained table */, 0);
    check_between(walk, "lanes", metric(walk, status, "lanes", ""), walk->lanes_now, 0);
    check_between(walk, "requests", metric(walk, status, "requests", ""), totals->requests,
                  totals->maybe_requests);
    check_between(walk, "rows asked for", metric(walk, status, "request_rows", "get"), got,
                  maybe_got);
    check_between(walk, "rows set", metric(walk, status, "request_rows", "set"),
                  totals->rows[EMBTIER_SET], totals->maybe_rows[EMBTIER_SET]);
    check_between(walk, "rows found", sum_lookups(walk, status), got, maybe_got);
    check_between(walk, "failed_rows", metric(walk, status, "failed_rows", ""), 0,
                  totals->maybe_failed_rows);
    check_between(walk, "write_error", metric(walk, status, "write_error", ""), 0, 0);
    check_between(walk, "reading_rows", metric(walk, status, "reading_rows", ""), 0, 0);
    WALK_CHECK(walk, strcmp(embtier_status_version(status), embtier_version()) == 0,
               "the server is of version %s", embtier_status_version(status));
    if (last)
        note_places(walk, status);
    embtier_status_free(status);
}

static void step_status(struct walk *walk)
{
    check_status(walk, false);
}

/* ---- Sessions ---- */

static struct walk_session *pick_session(struct walk *walk)
{
    return &walk->sessions[walk_pick(walk, WALK_SESSIONS)];
}

static void step_request(struct walk *walk)
{
    walk_submit(walk, pick_session(walk), false);
}

static void step_bad_request(struct walk *walk)
{
    walk_submit(walk, pick_session(walk), true);
}

/* From all sessions at once, so that they take turns. */
static void step_long_lookups(struct walk *walk)
{
    for (uint32_t s = 0; s < WALK_SESSIONS; s++)
        walk_submit_long_lookup(walk, &walk->sessions[s]);
}

static void step_train(struct walk *walk)
{
    walk_train(walk, pick_session(walk));
}

static void step_control(struct walk *walk)
{
    walk_control(walk, pick_session(walk));
}

static void step_knob(struct walk *walk)
{
    walk_set_knob(walk, pick_session(walk));
}

static void step_directory(struct walk *walk)
{
    walk_change_directories(walk);
}

/* Takes an answer, not always the oldest. */
static void step_answer(struct walk *walk)
{
    struct walk_session *const session = pick_session(walk);

    if (session->flight_count > 0)
        walk_finish(walk, session, walk_pick(walk, session->flight_count));
}

static void step_depth(struct walk *walk)
{
    struct walk_session *const session = pick_session(walk);

    session->depth = 1 + walk_pick(walk, session->slots);
}

/* Makes requests mostly GETs, or mostly SETs, for a while, and batches of many rows frequent or
 * rare. */
static void step_mood(struct walk *walk)
{
    static const uint32_t set_percents[] = { 10, 45, 45, 90 };
    static const uint32_t many_percents[] = { 2, 20, 20, 50 };

    walk->set_percent = set_percents[walk_pick(walk, ARRAY_LEN(set_percents))];
    walk->many_percent = many_percents[walk_pick(walk, ARRAY_LEN(many_percents))];
}

static void step_drain(struct walk *walk)
{
    walk_drain(walk, pick_session(walk));
}

/* Leaves, with or without requests in flight, and comes back as another session. */
static void step_leave(struct walk *walk)
{
    struct walk_session *const session = pick_session(walk);

    if (walk_chance(walk, 30))
        walk_drain(walk, session);
    walk_abandon(walk, session);
    free(TAKE(session->spare));
    embtier_disconnect(session->server);
    session->stale = NULL;
    session->has_joined = false;
    session->left_groups = 0;
    memset(session->handles, 0, sizeof(session->handles));
    await_sessions(walk, WALK_SESSIONS - 1);
    walk_connect(walk, session);
}

/* While the server runs, reconnecting does nothing. */
static void step_reconnect(struct walk *walk)
{
    struct walk_session *const session = pick_session(walk);

    walk_expect(walk, session->server, embtier_reconnect(session->server), EMBTIER_OK, "reconnect");
}

/* Requests in flight on the handle, and a kept batch, go on. */
static void step_close(struct walk *walk)
{
    struct walk_session *const session = pick_session(walk);
    const uint32_t t = walk_pick(walk, WALK_TABLES);

    embtier_table_close(TAKE(session->handles[t]));
}

static void step_sweep(struct walk *walk)
{
    const uint32_t t = walk_pick(walk, WALK_TABLES);

    if (walk->tables[t])
        walk_sweep(walk, pick_session(walk), t);
}

/* ---- Tables ---- */

/* May run on another thread, where a test cannot fail. */
static void see_progress(void *context, uint64_t done, uint64_t total, const char *unit)
{
    struct walk *const walk = context;

    if (done > total || !unit)
        walk->bad_progress = true;
}

/* Half of the time makes again the table that had the name before: the old rows must not come
 * back. */
static void create(struct walk *walk, uint32_t t)
{
    static const uint32_t shares[] = { 2, 16, 128 }; /* of the cache */
    const uint64_t cache_bytes = CACHE_MIB * MIB * walk->lanes;
    struct walk_session *const session = pick_session(walk);
    struct walk_last_table *const last = &walk->last[t];
    const bool again = walk_chance(walk, 50);
    const uint64_t bytes = cache_bytes / shares[walk_pick(walk, ARRAY_LEN(shares))];
    struct embtier_table_options options;
    struct model_table *table;
    char name[32];

    snprintf(name, sizeof(name), "walk.%u", t);
    if (!again || last->row_count == 0)
        model_random_spec(&walk->random, name, bytes, &last->spec, &last->row_count);
    table = model_table_new(&last->spec, last->row_count, ++walk->tables_made);
    options = walk_table_options(&table->spec);
    options.if_not_exists = walk_chance(walk, 50);
    options.progress = see_progress;
    options.progress_context = walk;
    walk_expect(walk, session->server,
                embtier_table_create(session->server, &options, &session->handles[t]), EMBTIER_OK,
                "create");
    table->table_id = embtier_table_info(session->handles[t])->table_id;
    walk_check_info(walk, table, embtier_table_info(session->handles[t]));
    WALK_CHECK(walk, table->table_id > walk->last_table_id, "table id %u is used again",
               table->table_id);
    walk->last_table_id = table->table_id;
    walk->tables[t] = table;
}

static void step_create(struct walk *walk)
{
    const uint32_t t = walk_pick(walk, WALK_TABLES);

    if (!walk->tables[t])
        create(walk, t);
}

static void *drop_main(void *context)
{
    struct walk *const walk = context;

    walk->drop_err = embtier_table_drop(walk->admin, walk->doomed->spec.name, see_progress, walk);
    return NULL;
}

/* Drops while others go on asking for the table's rows, until all of it is gone. */
static void drop_during_requests(struct walk *walk)
{
    const uint32_t requests = walk_pick(walk, 40);
    pthread_t thread;

    WALK_CHECK(walk, pthread_create(&thread, NULL, drop_main, walk) == 0, "no thread");
    for (uint32_t i = 0; i < requests; i++)
        walk_submit(walk, pick_session(walk), false);
    pthread_join(thread, NULL);
}

static void forget_table(struct walk *walk, uint32_t t)
{
    for (uint32_t s = 0; s < WALK_SESSIONS; s++) {
        struct walk_session *const session = &walk->sessions[s];

        walk_free_spare(walk, session);
        if (session->stale)
            embtier_table_close(session->handles[t]);
        else
            session->stale = session->handles[t];
        session->handles[t] = NULL;
    }
    free(TAKE(walk->tables[t]));
}

static void step_drop(struct walk *walk)
{
    struct walk_session *const session = pick_session(walk);
    const uint32_t t = walk_pick(walk, WALK_TABLES);

    if (!walk->tables[t] || count_tables(walk) < 3)
        return;
    for (uint32_t s = 0; s < WALK_SESSIONS; s++)
        walk_handle(walk, &walk->sessions[s], t); /* opened while that is still possible */
    walk->doomed = walk->tables[t];
    if (walk_chance(walk, 50)) {
        drop_during_requests(walk);
        walk_expect(walk, walk->admin, walk->drop_err, EMBTIER_OK, "drop");
    } else {
        walk_expect(
            walk, session->server,
            embtier_table_drop(session->server, walk->doomed->spec.name, see_progress, walk),
            EMBTIER_OK, "drop");
    }
    for (uint32_t s = 0; s < WALK_SESSIONS; s++)
        walk_drain(walk, &walk->sessions[s]);
    walk->doomed = NULL;
    WALK_CHECK(walk, !walk->bad_progress, "more was done than there is to do");
    forget_table(walk, t);
    if (walk_chance(walk, 50))
        create(walk, t);
}

static void *move_main(void *context)
{
    struct walk *const walk = context;

    walk->move_err = embtier_table_move(walk->mover, walk->moved, &walk->move, NULL);
    return NULL;
}

/* The ids of hot rows need an arena, which the admin has not. */
static struct embtier *connect_mover(struct walk *walk)
{
    struct embtier_connect_options options = EMBTIER_CONNECT_OPTIONS_INIT;
    struct embtier *mover = NULL;

    options.socket_path = walk->harness.socket;
    options.arena_bytes = 2 * MODEL_ROWS_MAX * sizeof(uint64_t);
    options.timeout_ms = WALK_TIMEOUT_MS;
    walk_expect(walk, NULL, embtier_connect(&options, &mover), EMBTIER_OK, "connect to move");
    return mover;
}

/* Moves a table to another home while others go on asking for its rows. */
static void step_move(struct walk *walk)
{
    struct model_table *const table = walk->tables[walk_pick(walk, WALK_TABLES)];
    uint64_t *hot_rows;
    pthread_t thread;

    if (!table)
        return;
    hot_rows = model_random_move(&walk->random, table);
    walk->mover = hot_rows ? connect_mover(walk) : walk->admin;
    walk->moving = table;
    walk->moved = table->spec.name;
    walk->move = (struct embtier_move_options)EMBTIER_MOVE_OPTIONS_INIT;
    walk->move.home = table->spec.home;
    walk->move.home_tier = table->spec.home_tier;
    walk->move.rate_bytes = walk_chance(walk, 50) ? 0 : 16 * MIB;
    walk->move.hot_rows = hot_rows;
    walk->move.hot_row_count = table->spec.hot_rows;
    walk->move.progress = see_progress;
    walk->move.progress_context = walk;
    WALK_CHECK(walk, pthread_create(&thread, NULL, move_main, walk) == 0, "no thread");
    for (uint32_t i = walk_pick(walk, 60); i > 0; i--)
        walk_submit(walk, pick_session(walk), false);
    pthread_join(thread, NULL);
    walk->moving = NULL;
    walk_expect(walk, walk->mover, walk->move_err, EMBTIER_OK, "move");
    if (hot_rows) {
        embtier_disconnect(walk->mover);
        await_sessions(walk, WALK_SESSIONS);
    }
    free(hot_rows);
    WALK_CHECK(walk, !walk->bad_progress, "more was done than there is to do");
}

static struct model_table *find_table(struct walk *walk, const char *name)
{
    for (uint32_t t = 0; t < WALK_TABLES; t++)
        if (walk->tables[t] && strcmp(walk->tables[t]->spec.name, name) == 0)
            return walk->tables[t];
    walk_fail(walk, "table %s is listed and should not be there", name);
}

static void step_list(struct walk *walk)
{
    struct embtier_table_list *list;
    struct embtier *const server = pick_session(walk)->server;

    for (uint32_t s = 0; s < WALK_SESSIONS; s++)
        walk_drain(walk, &walk->sessions[s]);
    walk_expect(walk, server, embtier_table_list(server, &list), EMBTIER_OK, "list");
    check_between(walk, "listed tables", (double)embtier_table_list_count(list),
                  count_tables(walk) + 1 /* the trained table */, 0);
    for (size_t i = 0; i < embtier_table_list_count(list); i++) {
        const struct embtier_table_info *const info = embtier_table_list_at(list, i);
        const struct model_table *table;

        if (strcmp(info->name, WALK_TRAINED_TABLE) == 0)
            continue;
        table = find_table(walk, info->name);
        walk_check_info(walk, table, info);
        check_between(walk, "updated_rows", (double)info->updated_rows, table->set_rows,
                      table->maybe_set_rows);
    }
    embtier_table_list_free(list);
}

static void step_bad_call(struct walk *walk)
{
    walk_call_badly(walk, pick_session(walk));
}

static void step_bad_batch(struct walk *walk)
{
    walk_batch_badly(walk, pick_session(walk));
}

/* ---- Restarts ---- */

static void step_restart(struct walk *walk)
{
    const uint32_t choices[] = { 1, 2, walk->lanes, 1 + walk_pick(walk, WALK_LANES_MAX) };

    check_status(walk, true);
    for (uint32_t i = walk_pick(walk, 40); i > 0; i--) /* some are in flight when the server ends */
        walk_submit(walk, pick_session(walk), false);
    walk_restart(walk, choices[walk_pick(walk, ARRAY_LEN(choices))]);
}

/* ---- The walk ---- */

/* STEP(what, how often in 100,000 steps). Nearly all are requests, most of them small. */
#define STEP_TABLE(STEP)                                                                           \
    STEP(request, 89340)                                                                           \
    STEP(train, 300)                                                                               \
    STEP(control, 60)                                                                              \
    STEP(knob, 40)                                                                                 \
    STEP(directory, 15)                                                                            \
    STEP(long_lookups, 300)                                                                        \
    STEP(answer, 7000)                                                                             \
    STEP(bad_request, 1000)                                                                        \
    STEP(depth, 500)                                                                               \
    STEP(mood, 100)                                                                                \
    STEP(drain, 300)                                                                               \
    STEP(close, 200)                                                                               \
    STEP(bad_batch, 100)                                                                           \
    STEP(bad_call, 100)                                                                            \
    STEP(create, 200)                                                                              \
    STEP(drop, 120)                                                                                \
    STEP(move, 120)                                                                                \
    STEP(list, 50)                                                                                 \
    STEP(status, 50)                                                                               \
    STEP(leave, 70)                                                                                \
    STEP(reconnect, 10)                                                                            \
    STEP(sweep, 15)                                                                                \
    STEP(restart, 10)

static const struct step {
    const char *name;
    uint32_t weight;
    void (*run)(struct walk *walk);
} steps[] = {
#define STEP(name, weight) { #name, weight, step_##name },
    STEP_TABLE(STEP)
#undef STEP
};
_Static_assert(ARRAY_LEN(steps) <= WALK_STEPS, "all kinds are counted");
static const uint32_t all_weights = 0
#define STEP(name, weight) +weight
    STEP_TABLE(STEP)
#undef STEP
    ;

static void run_step(struct walk *walk)
{
    uint32_t at = walk_pick(walk, all_weights);
    const struct step *step = steps;

    while (at >= step->weight)
        at -= step++->weight;
    walk->counts[step - steps]++;
    step->run(walk);
}

static uint64_t number_from(const char *name, uint64_t otherwise)
{
    const char *const text = getenv(name); // NOLINT(concurrency-mt-unsafe)

    return text ? strtoull(text, NULL, 0) : otherwise;
}

static void begin(struct walk *walk)
{
    walk->seed = seed_given(seed_random());
    walk->steps_wanted = number_from("EMBTIER_TEST_STEPS", STEPS);
    walk->lanes = (uint32_t)MIN(number_from("EMBTIER_TEST_LANES", 1), (uint64_t)WALK_LANES_MAX);
    walk->random = walk->seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
    fprintf(stderr, "EMBTIER_TEST_SEED=%" PRIu64 " EMBTIER_TEST_LANES=%u, %" PRIu64 " steps\n",
            walk->seed, walk->lanes, walk->steps_wanted);
    harness_new(&walk->harness);
    walk_configure(walk, walk->lanes);
    harness_start(&walk->harness);
    walk->lanes_now = walk->lanes;
    connect_admin(walk);
    for (uint32_t s = 0; s < WALK_SESSIONS; s++) {
        walk->sessions[s].number = s;
        walk_connect(walk, &walk->sessions[s]);
    }
    walk_training_new(walk, walk->sessions[0].server);
    step_mood(walk);
    while (count_tables(walk) < WALK_TABLES / 2)
        step_create(walk);
}

static void sweep_all(struct walk *walk)
{
    for (uint32_t t = 0; t < WALK_TABLES; t++)
        if (walk->tables[t])
            walk_sweep(walk, pick_session(walk), t);
    walk_check_trained(walk, pick_session(walk));
    check_status(walk, true);
}

static void show(const struct walk *walk)
{
    fprintf(stderr, "step %" PRIu64 ":", walk->step);
    for (size_t i = 0; i < ARRAY_LEN(steps); i++)
        fprintf(stderr, " %s %" PRIu64, steps[i].name, walk->counts[i]);
    fprintf(stderr, "; %" PRIu64 " bags (%" PRIu64 " not known), %" PRIu64 " rows, from",
            walk->bags_checked, walk->bags_unknown, walk->rows_checked);
    for (size_t i = 0; i < WALK_PLACES; i++)
        fprintf(stderr, " %s %" PRIu64, places[i], walk->place_rows[i]);
    fputs("\n", stderr);
}

/* A client's name for an operation of the ring. A new operation does not compile, or fails here. */
static enum embtier_op op_of(struct walk *walk, enum op_number op)
{
    switch (op) {
    case OP_GET:
        return EMBTIER_GET;
    case OP_SET:
        return EMBTIER_SET;
    case OP_POOL:
        return EMBTIER_GET_POOLED;
    case OP_PUSH:
        return EMBTIER_PUSH;
    case OP_RELEASE:
        return EMBTIER_RELEASE;
    case OP_PREFETCH:
        return EMBTIER_PREFETCH;
    }
    walk_fail(walk, "operation %d is unknown to the walk", (int)op);
}

/* The walk must have asked for every operation, so that a new one becomes a step. */
static void check_operations(struct walk *walk)
{
    for (uint32_t op = 1; op <= OP_LAST; op++)
        WALK_CHECK(walk, walk->op_counts[op_of(walk, (enum op_number)op)] > 0,
                   "the walk never asked for operation %u", op);
    WALK_CHECK(walk, walk->op_counts[EMBTIER_GET_POOLED_TICKET] > 0,
               "the walk never asked for a ticket");
}

static void end(struct walk *walk)
{
    sweep_all(walk);
    walk_restart(walk, walk->lanes);
    sweep_all(walk);
    show(walk);
    for (uint32_t s = 0; s < WALK_SESSIONS; s++) {
        walk_free_spare(walk, &walk->sessions[s]);
        embtier_disconnect(walk->sessions[s].server);
    }
    embtier_disconnect(walk->admin);
    for (uint32_t t = 0; t < WALK_TABLES; t++)
        free(walk->tables[t]);
    harness_stop(&walk->harness);
    for (size_t i = 0; i < WALK_PLACES && walk->steps_wanted >= STEPS_TO_BE_ALL; i++)
        WALK_CHECK(walk, walk->place_rows[i] > 0, "no row came from %s", places[i]);
    if (walk->steps_wanted >= STEPS_TO_BE_ALL) {
        check_operations(walk);
        walk_check_requests(walk);
    }
    WALK_CHECK(walk, harness_count_logged(&walk->harness, "level=error") == 0,
               "the server had errors");
}

static void test_every_row_is_what_a_model_says(void **state)
{
    struct walk *const walk = *state;

    begin(walk);
    while (walk->step < walk->steps_wanted) {
        walk->step++;
        run_step(walk);
        if (walk->step % PROGRESS_STEPS == 0 && walk->step < walk->steps_wanted)
            show(walk);
    }
    end(walk);
}

static int setup(void **state)
{
    *state = calloc(1, sizeof(struct walk));
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    struct walk *const walk = *state;

    harness_done(&walk->harness);
    free(walk);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_row_is_what_a_model_says, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
