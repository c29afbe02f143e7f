/* SPDX-License-Identifier: Apache-2.0 */
/* Training in the random walk, on a table of its own: prefetches, lookups with tickets, pushes
 * by ticket and of rows, and releases, along with the requests of all other steps.
 *
 * The table's optimizer is SGD, its rows begin as zeros, and gradients and rates are small whole
 * numbers. So every sum is exact, and a row is known to the bit in any order of updates. Each
 * step waits for its answer; the next look at a row must see it. */
#include <inttypes.h>

#include "base/macros.h"
#include "tests/integration/walk.h"

#define TRAIN_DIM  5
#define TRAIN_IDS  24 /* per request, at most */
#define TRAIN_BAGS 6
#define EXACT_MOST 1000000 /* far below 2^24, up to which f32 is exact */

struct embtier_table_options walk_trained_options(const char *name)
{
    struct embtier_table_options options = EMBTIER_TABLE_OPTIONS_INIT;

    options.name = name;
    options.dim = TRAIN_DIM;
    options.rows = WALK_TRAINED_ROWS;
    options.optimizer = EMBTIER_OPTIMIZER_SGD;
    options.init = EMBTIER_INIT_ZEROS;
    return options;
}

void walk_training_new(struct walk *walk, struct embtier *server)
{
    const struct embtier_table_options options = walk_trained_options(WALK_TRAINED_TABLE);
    struct embtier_table *table;

    walk_expect(walk, server, embtier_table_create(server, &options, &table), EMBTIER_OK,
                "create the table that is trained");
    walk->last_table_id = embtier_table_info(table)->table_id;
    embtier_table_close(table);
}

static struct embtier_table *open_table(struct walk *walk, struct walk_session *session,
                                        const char *name)
{
    struct embtier_table *table;

    walk_expect(walk, session->server, embtier_table_open(session->server, name, &table),
                EMBTIER_OK, "open the table that is trained");
    return table;
}

static void note(struct walk *walk, struct walk_session *session, enum embtier_op op, uint32_t rows)
{
    session->submitted++;
    walk->totals.requests++;
    walk->op_counts[op]++;
    if (op == EMBTIER_GET)
        walk->totals.rows[EMBTIER_GET] += rows;
    else if (op == EMBTIER_GET_POOLED || op == EMBTIER_GET_POOLED_TICKET)
        walk->totals.rows[EMBTIER_GET_POOLED] += rows;
}

/* Waits for the answer to a request that must succeed. */
static void run(struct walk *walk, struct walk_session *session, struct embtier_batch *batch,
                enum embtier_op op, const struct embtier_push_options *push, uint32_t rows)
{
    enum embtier_err err;

    walk_make_way(walk, session);
    err = push ? embtier_submit_push(batch, push) : embtier_submit(batch, op);
    walk_expect(walk, session->server, err, EMBTIER_OK, "submit of a training's request");
    note(walk, session, op, rows);
    walk_expect(walk, session->server, embtier_wait(batch, WALK_TIMEOUT_MS), EMBTIER_OK,
                "a training's request");
}

static void choose_ids(struct walk *walk, uint64_t *ids)
{
    for (uint32_t i = 0; i < TRAIN_IDS; i++)
        ids[i] = walk_pick(walk, walk_chance(walk, 50) ? 8 : WALK_TRAINED_ROWS);
}

/* Checks that all columns of row i are @wanted[i]. */
static void check(struct walk *walk, struct walk_session *session, struct embtier_table *table,
                  const uint64_t *ids, uint32_t count, const float *wanted)
{
    const struct embtier_part part = { table, count };
    struct embtier_batch *batch;
    const float *rows;

    while (embtier_batch_new(session->server, &part, 1, &batch) == EMBTIER_ARENA_FULL)
        walk_finish(walk, session, 0);
    for (uint32_t i = 0; i < count; i++)
        embtier_batch_ids(batch, 0)[i] = ids[i];
    run(walk, session, batch, EMBTIER_GET, NULL, count);
    rows = embtier_batch_rows(batch, 0);
    for (uint32_t i = 0; i < count * TRAIN_DIM; i++)
        WALK_CHECK(walk, rows[i] == wanted[ids[i / TRAIN_DIM]],
                   "trained row %" PRIu64 " column %u is %a, not %a", ids[i / TRAIN_DIM],
                   i % TRAIN_DIM, (double)rows[i], (double)wanted[ids[i / TRAIN_DIM]]);
    walk_expect(walk, session->server, embtier_batch_free(batch), EMBTIER_OK, "batch_free");
}

/* Prefetches @ids. Returns NULL if there is no room for the pins now. */
static struct embtier_batch *prefetch(struct walk *walk, struct walk_session *session,
                                      struct embtier_table *table, const uint64_t *ids)
{
    const struct embtier_part part = { table, TRAIN_IDS };
    struct embtier_batch *batch;
    enum embtier_err err;

    while (embtier_batch_new_prefetch(session->server, &part, 1, &batch) == EMBTIER_ARENA_FULL)
        walk_finish(walk, session, 0);
    for (uint32_t i = 0; i < TRAIN_IDS; i++)
        embtier_batch_ids(batch, 0)[i] = ids[i];
    walk_make_way(walk, session);
    walk_expect(walk, session->server, embtier_submit(batch, EMBTIER_PREFETCH), EMBTIER_OK,
                "submit of a prefetch");
    note(walk, session, EMBTIER_PREFETCH, 0);
    err = embtier_wait(batch, WALK_TIMEOUT_MS);
    if (err == EMBTIER_OK)
        return batch;
    walk_expect(walk, session->server, err, EMBTIER_PINS_FULL, "a prefetch");
    walk->totals.maybe_failed_rows += TRAIN_IDS;
    walk_expect(walk, session->server, embtier_batch_free(batch), EMBTIER_OK, "batch_free");
    return NULL;
}

static struct embtier_push_options options_of(struct walk *walk, struct embtier_batch *ahead)
{
    struct embtier_push_options options = EMBTIER_PUSH_OPTIONS_INIT;

    options.learning_rate = (double)walk_pick(walk, 3) - 1;
    options.step = ++walk->train_step;
    options.prefetch = ahead;
    return options;
}

/* Chooses a gradient for each of @count bags or ids, the same in all columns; multiplied by the
 * rate it is small. */
static void choose_gradients(struct walk *walk, float *gradients, uint32_t count)
{
    for (uint32_t b = 0; b < count; b++) {
        const float gradient = (float)walk_pick(walk, 9) - 4;

        for (uint32_t c = 0; c < TRAIN_DIM; c++)
            gradients[b * TRAIN_DIM + c] = gradient;
    }
}

static void train(struct walk *walk, uint64_t id, double rate, float gradient)
{
    walk->trained[id] -= (float)rate * gradient;
    WALK_CHECK(walk, walk->trained[id] < EXACT_MOST && walk->trained[id] > -EXACT_MOST,
               "trained row %" PRIu64 " is no more exact; take other gradients", id);
}

static void push_rows(struct walk *walk, struct walk_session *session, struct embtier_table *table,
                      const uint64_t *ids, struct embtier_batch *ahead)
{
    const struct embtier_push_options options = options_of(walk, ahead);
    const struct embtier_part part = { table, TRAIN_IDS };
    struct embtier_batch *batch;

    while (embtier_batch_new_push(session->server, &part, 1, &batch) == EMBTIER_ARENA_FULL)
        walk_finish(walk, session, 0);
    for (uint32_t i = 0; i < TRAIN_IDS; i++)
        embtier_batch_ids(batch, 0)[i] = ids[i];
    choose_gradients(walk, embtier_batch_gradients(batch, 0), TRAIN_IDS);
    for (uint32_t i = 0; i < TRAIN_IDS; i++)
        train(walk, ids[i], options.learning_rate,
              embtier_batch_gradients(batch, 0)[i * TRAIN_DIM]);
    run(walk, session, batch, EMBTIER_PUSH, &options, 0);
    walk_expect(walk, session->server, embtier_batch_free(batch), EMBTIER_OK, "batch_free");
}

static void check_sums(struct walk *walk, struct embtier_batch *batch, const uint64_t *ids)
{
    const uint32_t length = TRAIN_IDS / TRAIN_BAGS;
    const float *const bags = embtier_batch_bags(batch, 0);

    for (uint32_t b = 0; b < TRAIN_BAGS; b++) {
        float sum = 0;

        for (uint32_t i = 0; i < length; i++)
            sum += walk->trained[ids[b * length + i]];
        for (uint32_t c = 0; c < TRAIN_DIM; c++)
            WALK_CHECK(walk, bags[b * TRAIN_DIM + c] == sum, "a trained bag is %a, not %a",
                       (double)bags[b * TRAIN_DIM + c], (double)sum);
    }
}

/* Looks rows up with a ticket, which a push or a release then uses. */
static void use_ticket(struct walk *walk, struct walk_session *session, struct embtier_table *table,
                       const uint64_t *ids, struct embtier_batch *ahead, bool pushes)
{
    const struct embtier_bag_part part = { table, TRAIN_IDS, TRAIN_BAGS, EMBTIER_POOL_SUM, 0 };
    const struct embtier_push_options options = options_of(walk, ahead);
    const uint32_t length = TRAIN_IDS / TRAIN_BAGS;
    struct embtier_batch *batch;

    while (embtier_batch_new_bags(session->server, &part, 1, &batch) == EMBTIER_ARENA_FULL)
        walk_finish(walk, session, 0);
    for (uint32_t i = 0; i < TRAIN_IDS; i++)
        embtier_batch_ids(batch, 0)[i] = ids[i];
    for (uint32_t b = 0; b <= TRAIN_BAGS; b++)
        embtier_batch_offsets(batch, 0)[b] = b * length;
    run(walk, session, batch, EMBTIER_GET_POOLED_TICKET, NULL, TRAIN_IDS);
    check_sums(walk, batch, ids);
    if (pushes) {
        choose_gradients(walk, embtier_batch_gradients(batch, 0), TRAIN_BAGS);
        for (uint32_t i = 0; i < TRAIN_IDS; i++)
            train(walk, ids[i], options.learning_rate,
                  embtier_batch_gradients(batch, 0)[i / length * TRAIN_DIM]);
        run(walk, session, batch, EMBTIER_PUSH, &options, 0);
    } else {
        run(walk, session, batch, EMBTIER_RELEASE, NULL, 0);
    }
    walk_expect(walk, session->server, embtier_batch_free(batch), EMBTIER_OK, "batch_free");
}

void walk_train(struct walk *walk, struct walk_session *session)
{
    struct embtier_table *const table = open_table(walk, session, WALK_TRAINED_TABLE);
    const uint32_t way = walk_pick(walk, 3);
    struct embtier_batch *ahead = NULL;
    uint64_t ids[TRAIN_IDS];

    choose_ids(walk, ids);
    if (walk_chance(walk, 50))
        ahead = prefetch(walk, session, table, ids);
    if (way == 0)
        push_rows(walk, session, table, ids, ahead);
    else
        use_ticket(walk, session, table, ids, ahead, way == 1);
    if (ahead && way == 2) /* no push has taken it */
        run(walk, session, ahead, EMBTIER_RELEASE, NULL, 0);
    if (ahead)
        walk_expect(walk, session->server, embtier_batch_free(ahead), EMBTIER_OK, "batch_free");
    check(walk, session, table, ids, TRAIN_IDS, walk->trained);
    embtier_table_close(table);
}

void walk_check_rows_of(struct walk *walk, struct walk_session *session, const char *name,
                        const float *wanted)
{
    struct embtier_table *const table = open_table(walk, session, name);
    uint64_t ids[WALK_TRAINED_ROWS];

    for (uint32_t i = 0; i < WALK_TRAINED_ROWS; i++)
        ids[i] = i;
    check(walk, session, table, ids, WALK_TRAINED_ROWS, wanted);
    embtier_table_close(table);
}

void walk_check_trained(struct walk *walk, struct walk_session *session)
{
    walk_check_rows_of(walk, session, WALK_TRAINED_TABLE, walk->trained);
}
