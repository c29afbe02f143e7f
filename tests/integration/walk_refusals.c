/* SPDX-License-Identifier: Apache-2.0 */
/* Calls and batches of the random walk that the library or the server must refuse, and that must
 * change nothing. */
#include "base/macros.h"
#include "tests/integration/walk.h"

static const struct bad_spec {
    const char *name;
    uint32_t dim;
    enum embtier_init init;
    double first;
    int eager;
} bad_specs[] = {
    { "walk.bad", 0, EMBTIER_INIT_ZEROS, 0, 0 },
    { "walk.bad", EMBTIER_DIM_MAX + 1, EMBTIER_INIT_ZEROS, 0, 0 },
    { "walk/bad", 1, EMBTIER_INIT_ZEROS, 0, 0 },
    { NULL, 1, EMBTIER_INIT_ZEROS, 0, 0 },
    { "walk.bad", 1, EMBTIER_INIT_UNIFORM, 1, 0 }, /* low is 1 and high is 0 */
    { "walk.bad", 1, (enum embtier_init)77, 0, 0 },
    { "walk.bad", 1, EMBTIER_INIT_ZEROS, 0, 1 }, /* eager, but unbounded */
};

static void create_badly(struct walk *walk, struct embtier *server)
{
    const struct bad_spec *const bad = &bad_specs[walk_pick(walk, ARRAY_LEN(bad_specs))];
    struct embtier_table_options options = EMBTIER_TABLE_OPTIONS_INIT;
    struct embtier_table *table;

    options.name = bad->name;
    options.dim = bad->dim;
    options.init = bad->init;
    options.init_first = bad->first;
    options.eager = bad->eager;
    walk_expect(walk, server, embtier_table_create(server, &options, &table), EMBTIER_INVALID,
                "create a bad table");
}

/* Creates an existing table: once more with the same options, and with others. */
static void create_twice(struct walk *walk, struct embtier *server, const struct model_table *table)
{
    struct embtier_table_options options = walk_table_options(&table->spec);
    struct embtier_table *other;

    walk_expect(walk, server, embtier_table_create(server, &options, &other), EMBTIER_EXISTS,
                "create twice");
    options.if_not_exists = 1;
    walk_expect(walk, server, embtier_table_create(server, &options, &other), EMBTIER_OK,
                "create if not exists");
    walk_check_info(walk, table, embtier_table_info(other));
    embtier_table_close(other);
    options.seed++;
    walk_expect(walk, server, embtier_table_create(server, &options, &other), EMBTIER_MISMATCH,
                "create another");
}

static void open_badly(struct walk *walk, struct embtier *server, const struct model_table *table)
{
    const char *const name = table->spec.name;
    const int another =
        table->spec.dtype == EMBTIER_DTYPE_F32 ? EMBTIER_DTYPE_F16 : EMBTIER_DTYPE_F32;
    struct embtier_table *other;

    walk_expect(walk, server, embtier_table_open_as(server, name, table->spec.dim + 1, 0, &other),
                EMBTIER_MISMATCH, "open with another dim");
    walk_expect(walk, server, embtier_table_open_as(server, name, 0, another, &other),
                EMBTIER_MISMATCH, "open with another dtype");
    walk_expect(walk, server, embtier_table_open_as(server, name, 0, 77, &other), EMBTIER_INVALID,
                "open with a dtype that is none");
    walk_expect(walk, server, embtier_table_open(server, "walk.none", &other), EMBTIER_NO_TABLE,
                "open no table");
    walk_expect(walk, server, embtier_table_drop(server, "walk.none", NULL, NULL), EMBTIER_NO_TABLE,
                "drop no table");
}

void walk_call_badly(struct walk *walk, struct walk_session *session)
{
    struct embtier *const server = session->server;
    const struct model_table *const table = walk->tables[walk_pick(walk, WALK_TABLES)];
    const uint32_t which = walk_pick(walk, 3);

    if (which == 0 || !table)
        create_badly(walk, server);
    else if (which == 1)
        create_twice(walk, server, table);
    else
        open_badly(walk, server, table);
}

static void bags_badly(struct walk *walk, struct walk_session *session, struct embtier_table *table)
{
    struct embtier *const server = session->server;
    const struct embtier_bag_part few = { table, 2, 1, EMBTIER_POOL_MAX, 0 };
    struct embtier_bag_part bad = { table, 2, WALK_BATCH_ROWS + 1, EMBTIER_POOL_SUM, 0 };
    struct embtier_batch *batch;

    walk_expect(walk, server, embtier_batch_new_bags(server, &bad, 1, &batch), EMBTIER_TOO_LARGE,
                "batch of too many bags");
    bad = few;
    bad.weighted = 1;
    walk_expect(walk, server, embtier_batch_new_bags(server, &bad, 1, &batch), EMBTIER_INVALID,
                "weights of a maximum");
    bad = few;
    bad.mode = (enum embtier_pool)(walk_chance(walk, 50) ? 0 : EMBTIER_POOL_MAX + 1);
    walk_expect(walk, server, embtier_batch_new_bags(server, &bad, 1, &batch), EMBTIER_INVALID,
                "batch of bags of no mode");
    while (embtier_batch_new_bags(server, &few, 1, &batch) == EMBTIER_ARENA_FULL)
        walk_finish(walk, session, 0);
    walk_expect(walk, server, embtier_submit(batch, EMBTIER_GET), EMBTIER_INVALID, "GET of bags");
    walk_expect(walk, server, embtier_submit(batch, EMBTIER_SET), EMBTIER_INVALID, "SET of bags");
    walk_expect(walk, server, embtier_batch_set_bags(batch, 0, 3, 1), EMBTIER_TOO_LARGE,
                "more ids of bags than there is room");
    walk_expect(walk, server, embtier_batch_set_bags(batch, 0, 2, 2), EMBTIER_TOO_LARGE,
                "more bags than there is room");
    walk_expect(walk, server, embtier_batch_set_bags(batch, 1, 1, 1), EMBTIER_INVALID,
                "bags of no part");
    walk_expect(walk, server, embtier_batch_set_count(batch, 0, 1), EMBTIER_INVALID,
                "a count of rows for bags");
    WALK_CHECK(walk,
               !embtier_batch_rows(batch, 0) && !embtier_batch_weights(batch, 0) &&
                   !embtier_batch_offsets(batch, 1) && !embtier_batch_bags(batch, 1),
               "a batch of bags has what it should not have");
    walk_expect(walk, server, embtier_batch_free(batch), EMBTIER_OK, "batch_free");
}

void walk_batch_badly(struct walk *walk, struct walk_session *session)
{
    struct embtier *const server = session->server;
    struct walk_session *const other = &walk->sessions[(session->number + 1) % WALK_SESSIONS];
    const uint32_t t = walk_pick_table(walk);
    const struct embtier_part few = { walk_handle(walk, session, t), 1 };
    const struct embtier_part many = { few.table, WALK_BATCH_ROWS + 1 };
    const struct embtier_part foreign = { walk_handle(walk, other, t), 1 };
    struct embtier_batch *batch;

    walk_expect(walk, server, embtier_batch_new(server, &many, 1, &batch), EMBTIER_TOO_LARGE,
                "batch of too many rows");
    walk_expect(walk, server, embtier_batch_new(server, &foreign, 1, &batch), EMBTIER_INVALID,
                "batch of another session's table");
    walk_expect(walk, walk->admin, embtier_batch_new(walk->admin, NULL, 0, &batch), EMBTIER_INVALID,
                "batch without an arena");
    if (session->flight_count > 0)
        walk_expect(walk, server, embtier_submit(session->flight[0]->batch, session->flight[0]->op),
                    EMBTIER_BUSY, "submit twice");
    while (embtier_batch_new(server, &few, 1, &batch) == EMBTIER_ARENA_FULL)
        walk_finish(walk, session, 0);
    walk_expect(walk, server, embtier_poll(batch), EMBTIER_INVALID, "poll before submit");
    walk_expect(walk, server, embtier_wait(batch, 0), EMBTIER_INVALID, "wait before submit");
    walk_expect(walk, server, embtier_submit(batch, (enum embtier_op)7), EMBTIER_INVALID,
                "submit of no operation");
    walk_expect(walk, server, embtier_submit(batch, EMBTIER_GET_POOLED), EMBTIER_INVALID,
                "pooled lookup of a batch without bags");
    walk_expect(walk, server, embtier_batch_set_bags(batch, 0, 1, 0), EMBTIER_INVALID,
                "bags of a batch without bags");
    walk_expect(walk, server, embtier_batch_set_count(batch, 0, 2), EMBTIER_TOO_LARGE,
                "more rows than there is room");
    walk_expect(walk, server, embtier_batch_set_count(batch, 1, 1), EMBTIER_INVALID,
                "rows of no part");
    WALK_CHECK(walk, !embtier_batch_ids(batch, 1) && !embtier_batch_rows(batch, 1),
               "a part that is none has ids or rows");
    WALK_CHECK(walk,
               !embtier_batch_offsets(batch, 0) && !embtier_batch_weights(batch, 0) &&
                   !embtier_batch_bags(batch, 0),
               "a batch without bags has some");
    walk_expect(walk, server, embtier_batch_free(batch), EMBTIER_OK, "batch_free");
    bags_badly(walk, session, few.table);
}
