/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/integration/walk.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/macros.h"

#define POLLS_MAX 200

#define LOG_IN_FLIGHT 4
_Static_assert(1 << LOG_IN_FLIGHT == WALK_IN_FLIGHT, "the most slots are enough");

void walk_fail(struct walk *walk, const char *format, ...)
{
    const char *const program = getenv("EMBTIERD"); // NOLINT(concurrency-mt-unsafe)
    char what[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    harness_show_log(&walk->harness);
    fprintf(stderr, "step %" PRIu64 ": %s\n", walk->step, what);
    fprintf(stderr,
            "the same way again: %s%s%sEMBTIER_TEST_SEED=%" PRIu64 " EMBTIER_TEST_LANES=%u "
            "EMBTIER_TEST_STEPS=%" PRIu64 " %s\n",
            program ? "EMBTIERD=" : "", program ? program : "", program ? " " : "", walk->seed,
            walk->lanes, walk->steps_wanted, program_invocation_name);
    fail_msg("%s", what);
    abort(); /* not reached, but only cmocka knows that */
}

void walk_expect(struct walk *walk, const struct embtier *server, enum embtier_err err,
                 enum embtier_err wanted, const char *call)
{
    WALK_CHECK(walk, err == wanted, "%s: %s, not %s: %s", call, embtier_err_name(err),
               embtier_err_name(wanted), err ? embtier_message(server) : "no message");
}

uint32_t walk_pick(struct walk *walk, uint64_t below)
{
    return model_pick(&walk->random, below);
}

bool walk_chance(struct walk *walk, uint32_t percent)
{
    return walk_pick(walk, 100) < percent;
}

/* ---- Sessions and handles ---- */

void walk_connect(struct walk *walk, struct walk_session *session)
{
    struct embtier_connect_options options = EMBTIER_CONNECT_OPTIONS_INIT;

    options.socket_path = walk->harness.socket;
    options.arena_bytes = WALK_ARENA_BYTES;
    session->slots = WALK_IN_FLIGHT >> walk_pick(walk, 1 + walk_pick(walk, LOG_IN_FLIGHT + 1));
    session->depth = session->slots;
    options.max_in_flight = session->slots;
    options.timeout_ms = WALK_TIMEOUT_MS;
    options.client_name = "walk";
    walk_expect(walk, NULL, embtier_connect(&options, &session->server), EMBTIER_OK, "connect");
}

static bool same_home(const struct embtier_table_info *info, const struct table_spec *spec)
{
    return info->home == spec->home && info->hot_rows == spec->hot_rows &&
           strcmp(info->home_tier, spec->home_tier) == 0;
}

static bool same_update(const struct embtier_table_info *info, const struct table_spec *spec)
{
    bool same = info->rounds_to_nearest == spec->rounds_to_nearest &&
                info->allows_nonfinite == spec->allows_nonfinite &&
                info->durability == spec->durability;

#define X(name, field, lowest, highest, standard, text) same = same && info->field == spec->field;
    EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
    return same;
}

void walk_check_info(struct walk *walk, const struct model_table *table,
                     const struct embtier_table_info *info)
{
    const struct table_spec *const spec = &table->spec;

    WALK_CHECK(
        walk,
        strcmp(info->name, spec->name) == 0 && info->table_id == table->table_id &&
            info->rows == spec->rows && info->dim == spec->dim && info->dtype == spec->dtype &&
            info->optimizer == spec->optimizer && info->init == spec->init &&
            info->init_first == spec->init_params[0] && info->init_second == spec->init_params[1] &&
            same_update(info, spec) && (table == walk->moving || same_home(info, spec)) &&
            info->seed == spec->seed && (info->eager != 0) == spec->eager &&
            info->weight_bytes == table_spec_weight_bytes(spec) &&
            info->state_bytes == table_spec_state_bytes(spec) && strcmp(info->state, "live") == 0,
        "table %s (%u, %s) is described as another than it was made (%u)", info->name,
        info->table_id, info->state, table->table_id);
}

struct embtier_table_options walk_table_options(const struct table_spec *spec)
{
    struct embtier_table_options options = EMBTIER_TABLE_OPTIONS_INIT;

    options.name = spec->name;
    options.rows = spec->rows;
    options.dim = spec->dim;
    options.dtype = spec->dtype;
    options.optimizer = spec->optimizer;
    options.init = spec->init;
    options.init_first = spec->init_params[0];
    options.init_second = spec->init_params[1];
    options.seed = spec->seed;
    options.eager = spec->eager;
#define X(name, field, lowest, highest, standard, text) options.field = spec->field;
    EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
    options.rounds_to_nearest = spec->rounds_to_nearest;
    options.allows_nonfinite = spec->allows_nonfinite;
    options.durability = spec->durability;
    if (spec->home == EMBTIER_HOME_SPLIT) /* which only a move gives: any home will do */
        return options;
    options.home = spec->home;
    options.home_tier = spec->home_tier;
    return options;
}

struct embtier_table *walk_handle(struct walk *walk, struct walk_session *session, uint32_t t)
{
    const struct model_table *const table = walk->tables[t];
    struct embtier_table **const handle = &session->handles[t];

    if (!*handle) {
        walk_expect(walk, session->server,
                    embtier_table_open_as(session->server, table->spec.name, table->spec.dim,
                                          table->spec.dtype, handle),
                    EMBTIER_OK, "open");
        walk_check_info(walk, table, embtier_table_info(*handle));
    }
    return *handle;
}

/* ---- Making a request ---- */

/* Picks few rows, many, or very many, but never lets more than some MiB be in flight. Rows of a
 * pooled lookup take no room there, and very many of them take several waves. */
static uint32_t pick_count(struct walk *walk, const struct model_table *table, enum embtier_op op,
                           uint32_t part_count)
{
    const uint32_t most_bytes = op == EMBTIER_GET_POOLED ? 3 << 20 : 512 << 10;
    const uint32_t weight_bytes = table_spec_weight_bytes(&table->spec);
    const bool many = walk_chance(walk, walk->many_percent);
    const bool very_many = many && walk_chance(walk, op == EMBTIER_GET_POOLED ? 25 : 10);
    const uint32_t rows = very_many ? WALK_BATCH_ROWS / part_count - 1 : many ? 120 : 12;
    const uint32_t bytes = very_many ? most_bytes : many ? 128 << 10 : 32 << 10;

    if (walk_chance(walk, 1))
        return 0;
    return 1 + walk_pick(walk, MIN(rows, MAX(bytes / weight_bytes, 1u)));
}

uint32_t walk_pick_table(struct walk *walk)
{
    uint32_t t = walk_pick(walk, WALK_TABLES);

    while (!walk->tables[t])
        t = (t + 1) % WALK_TABLES;
    return t;
}

static enum embtier_err new_batch(const struct walk_session *session, enum embtier_op op,
                                  const struct embtier_bag_part *parts, uint32_t part_count,
                                  struct embtier_batch **ret_batch)
{
    struct embtier_part without_bags[WALK_PARTS];

    if (op == EMBTIER_GET_POOLED)
        return embtier_batch_new_bags(session->server, parts, part_count, ret_batch);
    for (uint32_t p = 0; p < part_count; p++)
        without_bags[p] = (struct embtier_part){ parts[p].table, parts[p].count };
    return embtier_batch_new(session->server, without_bags, part_count, ret_batch);
}

/* Waits for older requests until the arena has room. */
static struct walk_request *new_request(struct walk *walk, struct walk_session *session,
                                        enum embtier_op op, const struct embtier_bag_part *parts,
                                        uint32_t part_count)
{
    struct walk_request *request;
    enum embtier_err err;
    uint64_t row_count = 0;

    for (uint32_t p = 0; p < part_count; p++)
        row_count += parts[p].count;
    request = calloc(1, sizeof(*request) + row_count * sizeof(request->rows[0]));
    WALK_CHECK(walk, request, "out of memory");
    request->op = op;
    request->part_count = part_count;
    for (uint32_t p = 0; p < part_count; p++) {
        const struct embtier_table_info *const info = embtier_table_info(parts[p].table);

        request->weight_bytes[p] = info->weight_bytes;
        request->bag_bytes[p] = info->dim * (uint32_t)sizeof(float);
        request->modes[p] = parts[p].mode;
    }
    while ((err = new_batch(session, op, parts, part_count, &request->batch)) ==
               EMBTIER_ARENA_FULL &&
           (session->flight_count > 0 || session->spare)) {
        walk_free_spare(walk, session);
        if (session->flight_count > 0)
            walk_finish(walk, session, 0);
    }
    walk_expect(walk, session->server, err, EMBTIER_OK, "batch_new");
    return request;
}

static struct walk_request *random_request(struct walk *walk, struct walk_session *session,
                                           enum embtier_op op)
{
    const uint32_t part_count = walk_chance(walk, 65) ? 1 : walk_pick(walk, WALK_PARTS + 1);
    struct model_table *tables[WALK_PARTS];
    struct embtier_bag_part parts[WALK_PARTS] = { 0 };
    struct walk_request *request;

    for (uint32_t p = 0; p < part_count; p++) {
        const uint32_t t = walk_pick_table(walk);

        tables[p] = walk->tables[t];
        parts[p].table = walk_handle(walk, session, t);
        parts[p].count = pick_count(walk, tables[p], op, part_count);
        if (op == EMBTIER_GET_POOLED)
            walk_pick_bags(walk, &parts[p]);
    }
    request = new_request(walk, session, op, parts, part_count);
    memcpy(request->tables, tables, part_count * sizeof(tables[0]));
    return request;
}

/* Reuses the batch of an answered request, with at most as many ids. Its operation becomes @op,
 * except that a batch with bags keeps it, and one without takes GET in place of a pooled lookup. */
static struct walk_request *reuse_request(struct walk *walk, struct walk_session *session,
                                          enum embtier_op op)
{
    struct walk_request *const request = TAKE(session->spare);
    const bool has_bags = request->op == EMBTIER_GET_POOLED;

    WALK_CHECK(walk, embtier_batch_part_count(request->batch) == request->part_count,
               "a batch has lost parts");
    for (uint32_t p = 0; p < request->part_count; p++) {
        const uint32_t count = walk_pick(walk, embtier_batch_count(request->batch, p) + 1);
        const uint32_t bags = walk_pick(walk, embtier_batch_bag_count(request->batch, p) + 1);

        if (has_bags)
            walk_expect(walk, session->server,
                        embtier_batch_set_bags(request->batch, p, count, MAX(bags, MIN(count, 1u))),
                        EMBTIER_OK, "batch_set_bags");
        else
            walk_expect(walk, session->server, embtier_batch_set_count(request->batch, p, count),
                        EMBTIER_OK, "batch_set_count");
    }
    if (!has_bags)
        request->op = op == EMBTIER_GET_POOLED ? EMBTIER_GET : op;
    request->refused = false;
    return request;
}

static void choose_rows(struct walk *walk, const struct walk_session *session,
                        struct walk_request *request)
{
    struct walk_row *row = request->rows;

    for (uint32_t p = 0; p < request->part_count; p++) {
        const uint32_t count = embtier_batch_count(request->batch, p);
        enum model_pattern pattern = (enum model_pattern)walk_pick(walk, (uint64_t)MODEL_PATTERNS);
        const int owner =
            request->op == EMBTIER_SET || walk_chance(walk, 50) ? (int)session->number : -1;
        const uint32_t tail = walk_pick(walk, 2 * count + 1); /* these rows are surely cached */
        const uint32_t run = 64u << walk_pick(walk, 7);
        uint64_t *const ids = embtier_batch_ids(request->batch, p);
        uint32_t before = walk_pick(walk, request->tables[p]->row_count);

        for (uint32_t i = 0; i < count; i++, row++) {
            if (i % run == run - 1 && i < tail) /* a jump to rows elsewhere */
                pattern = (enum model_pattern)walk_pick(walk, (uint64_t)MODEL_PATTERNS);
            if (i == tail && request->op == EMBTIER_GET_POOLED)
                pattern = MODEL_TOP;
            row->row = before =
                model_pick_row(request->tables[p], &walk->random, pattern, before, owner);
            ids[i] = model_id(request->tables[p], row->row);
        }
        if (request->op == EMBTIER_GET_POOLED)
            walk_cut_bags(walk, request, p);
    }
}

uint8_t *walk_answer(const struct walk_request *request, uint32_t p, size_t *ret_bytes)
{
    const struct embtier_batch *const batch = request->batch;

    if (request->op == EMBTIER_GET_POOLED) {
        *ret_bytes = (size_t)embtier_batch_bag_count(batch, p) * request->bag_bytes[p];
        return (uint8_t *)embtier_batch_bags(request->batch, p);
    }
    *ret_bytes = (size_t)embtier_batch_count(batch, p) * request->weight_bytes[p];
    return embtier_batch_rows(request->batch, p);
}

/* Notes the versions that a GET of the row may see if it is submitted now. */
static void expect_row(const struct walk_session *session, const struct model_table *table,
                       struct walk_row *row)
{
    const struct model_row *const model = &table->rows[row->row];
    const bool own = row->row % MODEL_OWNERS == session->number;

    row->settled = model->settled;
    row->low = own && !model->loose ? model->newest : model->settled;
    row->high = own ? model->newest : MODEL_NO_VERSION;
}

static void expect_rows(struct walk_session *session, struct walk_request *request)
{
    struct walk_row *row = request->rows;

    for (uint32_t p = 0; p < request->part_count; p++) {
        struct model_table *const table = request->tables[p];
        const uint32_t bytes = request->weight_bytes[p];
        const uint32_t count = embtier_batch_count(request->batch, p);
        size_t answer_bytes;
        uint8_t *const weights = walk_answer(request, p, &answer_bytes);

        if (request->op != EMBTIER_SET || request->refused)
            memset(weights, WALK_POISON, answer_bytes);
        for (uint32_t i = 0; i < count && !request->refused; i++, row++) {
            if (request->op != EMBTIER_SET) {
                expect_row(session, table, row);
            } else {
                row->low = model_set(table, row->row);
                model_fill(table, row->row, row->low, weights + (size_t)i * bytes);
            }
        }
    }
}

/* Breaks a request if it can. True if the server will refuse it. */
static bool spoil(struct walk *walk, struct walk_request *request)
{
    const uint32_t first = walk_pick(walk, WALK_PARTS);

    if (request->op == EMBTIER_GET_POOLED && request->part_count > 0 && walk_chance(walk, 50)) {
        walk_spoil_bags(walk, request);
        return true;
    }
    for (uint32_t i = 0; i < request->part_count; i++) {
        const uint32_t p = (first + i) % request->part_count;
        const uint32_t count = embtier_batch_count(request->batch, p);
        const uint64_t rows = request->tables[p]->spec.rows;

        if (rows == EMBTIER_UNBOUNDED || count == 0)
            continue;
        embtier_batch_ids(request->batch, p)[walk_pick(walk, count)] =
            walk_chance(walk, 50) ? rows : UINT64_MAX - walk_pick(walk, rows);
        request->refused = true;
        request->err = EMBTIER_ID_RANGE;
        return true;
    }
    return false;
}

/* A request with parts of a live table and one of a dropped table. */
static struct walk_request *stale_request(struct walk *walk, struct walk_session *session,
                                          enum embtier_op op)
{
    const uint32_t t = walk_pick_table(walk);
    const struct embtier_bag_part parts[] = {
        { walk_handle(walk, session, t), 3, 2, EMBTIER_POOL_SUM, 0 },
        { session->stale, 2, 3, EMBTIER_POOL_SUM, 0 },
        { walk_handle(walk, session, t), 1, 1, EMBTIER_POOL_MAX, 0 },
    };
    struct walk_request *const request =
        new_request(walk, session, op, parts, (uint32_t)ARRAY_LEN(parts));

    for (uint32_t p = 0; p < ARRAY_LEN(parts); p++) {
        request->tables[p] = walk->tables[t]; /* its ids serve for the dropped table too */
        for (uint32_t i = 0; i < parts[p].count; i++)
            embtier_batch_ids(request->batch, p)[i] = model_id(walk->tables[t], i);
    }
    request->refused = true;
    request->err = EMBTIER_NO_TABLE;
    return request;
}

/* ---- Answers ---- */

static uint32_t count_rows(const struct walk_request *request)
{
    uint32_t rows = 0;

    for (uint32_t p = 0; p < request->part_count; p++)
        rows += embtier_batch_count(request->batch, p);
    return rows;
}

static bool is_poison(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != WALK_POISON)
            return false;
    return true;
}

static void check_untouched(struct walk *walk, const struct walk_request *request)
{
    for (uint32_t p = 0; p < request->part_count; p++) {
        size_t bytes;
        const uint8_t *const rows = walk_answer(request, p, &bytes);

        WALK_CHECK(walk, is_poison(rows, bytes),
                   "a refused request has changed rows of part %u in the client's memory", p);
    }
}

static void wrong_row(struct walk *walk, const struct walk_session *session,
                      const struct model_table *table, const struct walk_row *row, uint32_t high,
                      const uint8_t *weights)
{
    const uint32_t bytes = table_spec_weight_bytes(&table->spec);
    const uint32_t newest = table->rows[row->row].newest;
    const uint32_t version = model_match(table, row->row, 0, newest, weights);
    char got[32] = "of no version";

    if (version != MODEL_NO_VERSION)
        snprintf(got, sizeof(got), "version %u", version);
    else if (is_poison(weights, bytes))
        snprintf(got, sizeof(got), "left unwritten");
    walk_fail(walk,
              "session %u: table %s (id %u, dim %u): row %" PRIu64 " of session %u is %s, "
              "must be version %u to %u, newest is %u",
              session->number, table->spec.name, table->table_id, table->spec.dim,
              model_id(table, row->row), row->row % MODEL_OWNERS, got, row->low, high, newest);
}

static void check_rows(struct walk *walk, const struct walk_session *session,
                       const struct walk_request *request)
{
    const struct walk_row *row = request->rows;

    for (uint32_t p = 0; p < request->part_count; p++) {
        struct model_table *const table = request->tables[p];
        const uint32_t bytes = request->weight_bytes[p];
        const uint32_t count = embtier_batch_count(request->batch, p);
        const uint8_t *weights = embtier_batch_rows(request->batch, p);

        walk->rows_checked += count;
        if (request->op == EMBTIER_GET_POOLED) {
            walk_check_bags(walk, session, request, p, row);
            row += count;
            continue;
        }
        for (uint32_t i = 0; i < count; i++, row++, weights += bytes) {
            uint32_t version = row->low;

            if (request->op == EMBTIER_GET) {
                const uint32_t high = MIN(row->high, (uint32_t)table->rows[row->row].newest);

                version = model_match(table, row->row, row->low, high, weights);
                if (version == MODEL_NO_VERSION)
                    wrong_row(walk, session, table, row, high, weights);
            }
            model_settle(table, row->row, version);
        }
        if (request->op == EMBTIER_SET)
            table->set_rows += count;
    }
}

/* The answer is lost, so each SET of the request may have taken effect; requests behind it may
 * see either version. */
static void lose(struct walk_session *session, const struct walk_request *request)
{
    const struct walk_row *row = request->rows;

    if (request->op != EMBTIER_SET || request->refused)
        return;
    for (uint32_t p = 0; p < request->part_count; p++)
        for (uint32_t i = embtier_batch_count(request->batch, p); i > 0; i--)
            model_loosen(request->tables[p], (row++)->row);
    for (uint32_t f = 0; f < session->flight_count; f++)
        for (uint32_t i = count_rows(session->flight[f]); i > 0; i--)
            if (session->flight[f]->op != EMBTIER_SET)
                session->flight[f]->rows[i - 1].low = session->flight[f]->rows[i - 1].settled;
}

static bool touches(const struct walk_request *request, const struct model_table *table)
{
    for (uint32_t p = 0; p < request->part_count; p++)
        if (request->tables[p] == table)
            return true;
    return false;
}

/* Waits for the answer, in one of several ways. */
static enum embtier_err await_answer(struct walk *walk, struct embtier_batch *batch)
{
    const uint32_t way = walk_pick(walk, 8);
    enum embtier_err err;

    for (uint32_t i = 0; way == 0 && i < POLLS_MAX; i++)
        if ((err = embtier_poll(batch)) != EMBTIER_AGAIN)
            return err;
    if (way == 1 && (err = embtier_wait(batch, 0)) != EMBTIER_TIMEOUT)
        return err;
    return embtier_wait(batch, WALK_TIMEOUT_MS);
}

static void request_free(struct walk *walk, struct walk_session *session,
                         struct walk_request *request)
{
    walk_expect(walk, session->server, embtier_batch_free(request->batch), EMBTIER_OK,
                "batch_free");
    free(request);
}

void walk_free_spare(struct walk *walk, struct walk_session *session)
{
    if (session->spare)
        request_free(walk, session, TAKE(session->spare));
}

static const char *const op_names[] = {
    [EMBTIER_GET] = "GET", [EMBTIER_SET] = "SET", [EMBTIER_GET_POOLED] = "pooled GET"
};

static void check_answer(struct walk *walk, struct walk_session *session,
                         const struct walk_request *request, enum embtier_err err)
{
    const uint32_t count = count_rows(request);

    walk->totals.requests++;
    if ((walk->doomed && touches(request, walk->doomed) &&
         (err == EMBTIER_DROPPED || err == EMBTIER_NO_TABLE)) ||
        (!walk->harness.pid && err == EMBTIER_DISCONNECTED)) {
        lose(session, request);
        return;
    }
    if (request->refused) {
        walk_expect(walk, session->server, err, request->err, "a request that must be refused");
        if (request->op == EMBTIER_GET_POOLED && err != EMBTIER_NO_TABLE)
            walk->totals.maybe_rows[request->op] += count; /* may be refused half-way */
        else
            check_untouched(walk, request);
        return;
    }
    walk_expect(walk, session->server, err, EMBTIER_OK, op_names[request->op]);
    WALK_CHECK(walk, embtier_batch_hit_rows(request->batch) <= count,
               "%" PRIu64 " of %u rows are hits", embtier_batch_hit_rows(request->batch), count);
    check_rows(walk, session, request);
    walk->totals.rows[request->op] += count;
}

static void take_answer(struct walk *walk, struct walk_session *session,
                        struct walk_request *request, enum embtier_err err)
{
    const bool keep = walk_chance(walk, 20);

    check_answer(walk, session, request, err);
    if (keep && !session->spare && !request->refused &&
        !(walk->doomed && touches(request, walk->doomed)))
        session->spare = request;
    else
        request_free(walk, session, request);
}

void walk_finish(struct walk *walk, struct walk_session *session, uint32_t at)
{
    struct walk_request *const request = session->flight[at];

    session->flight_count--;
    memmove(&session->flight[at], &session->flight[at + 1],
            (session->flight_count - at) * sizeof(session->flight[0]));
    take_answer(walk, session, request, await_answer(walk, request->batch));
}
void walk_drain(struct walk *walk, struct walk_session *session)
{
    while (session->flight_count > 0)
        walk_finish(walk, session, 0);
}

void walk_abandon(struct walk *walk, struct walk_session *session)
{
    while (session->flight_count > 0) {
        struct walk_request *const request = session->flight[--session->flight_count];

        lose(session, request);
        walk->totals.maybe_requests++;
        if (!request->refused || request->op == EMBTIER_GET_POOLED)
            walk->totals.maybe_rows[request->op] += count_rows(request);
        for (uint32_t p = 0; p < request->part_count; p++)
            if (request->op == EMBTIER_SET)
                request->tables[p]->maybe_set_rows += embtier_batch_count(request->batch, p);
        free(request); /* its batch ends with the connection */
    }
}

/* ---- Submitting ---- */

void walk_make_way(struct walk *walk, struct walk_session *session)
{
    while (session->flight_count >= session->depth ||
           (session->flight_count > 0 &&
            session->submitted - session->flight[0]->number >= session->slots))
        walk_finish(walk, session, 0);
}

static void put_in_flight(struct walk *walk, struct walk_session *session,
                          struct walk_request *request)
{
    walk_expect(walk, session->server, embtier_submit(request->batch, request->op), EMBTIER_OK,
                "submit");
    walk->op_counts[request->op]++;
    request->number = session->submitted++;
    session->flight[session->flight_count++] = request;
}

/* Submits a request and waits, whatever else is in flight. */
static void call(struct walk *walk, struct walk_session *session, struct walk_request *request)
{
    const enum embtier_err err = request->op == EMBTIER_GET   ? embtier_get(request->batch)
                                 : request->op == EMBTIER_SET ? embtier_set(request->batch)
                                                              : embtier_get_pooled(request->batch);

    walk->op_counts[request->op]++;
    session->submitted++;
    take_answer(walk, session, request, err);
}

void walk_submit(struct walk *walk, struct walk_session *session, bool bad)
{
    const enum embtier_op op = walk_chance(walk, walk->set_percent) ? EMBTIER_SET
                               : walk_chance(walk, 60)              ? EMBTIER_GET
                                                                    : EMBTIER_GET_POOLED;
    struct walk_request *request;

    walk_make_way(walk, session);
    if (bad && session->stale && walk_chance(walk, 50)) {
        request = stale_request(walk, session, op);
    } else {
        request = session->spare && walk_chance(walk, 50) ? reuse_request(walk, session, op)
                                                          : random_request(walk, session, op);
        choose_rows(walk, session, request);
        if (bad)
            spoil(walk, request);
    }
    expect_rows(session, request);
    /* Not while older requests may be refused: the server would refuse this one before the walk
     * knows of the drop. */
    if (walk_chance(walk, 3) && !walk->doomed)
        call(walk, session, request);
    else
        put_in_flight(walk, session, request);
}

void walk_submit_long_lookup(struct walk *walk, struct walk_session *session)
{
    const uint32_t t = walk_pick_table(walk);
    const uint32_t weight_bytes = table_spec_weight_bytes(&walk->tables[t]->spec);
    const uint32_t count = (1 + walk_pick(walk, 4 << 20)) / weight_bytes;
    struct embtier_bag_part part = { .table = walk_handle(walk, session, t),
                                     .count = MIN(count, (uint32_t)WALK_BATCH_ROWS) };
    struct walk_request *request;

    walk_make_way(walk, session);
    walk_pick_bags(walk, &part);
    part.bag_count = MIN(part.bag_count, 3u);
    request = new_request(walk, session, EMBTIER_GET_POOLED, &part, 1);
    request->tables[0] = walk->tables[t];
    choose_rows(walk, session, request);
    expect_rows(session, request);
    put_in_flight(walk, session, request);
}

void walk_sweep(struct walk *walk, struct walk_session *session, uint32_t t)
{
    struct model_table *const table = walk->tables[t];
    const uint32_t most =
        MIN((256u << 10) / table_spec_weight_bytes(&table->spec) + 1, (uint32_t)WALK_BATCH_ROWS);

    for (uint32_t first = 0; first < table->row_count; first += most) {
        const struct embtier_bag_part part = { .table = walk_handle(walk, session, t),
                                               .count = MIN(most, table->row_count - first) };
        struct walk_request *request;

        walk_make_way(walk, session);
        request = new_request(walk, session, EMBTIER_GET, &part, 1);
        request->tables[0] = table;
        for (uint32_t i = 0; i < part.count; i++) {
            request->rows[i].row = first + i;
            embtier_batch_ids(request->batch, 0)[i] = model_id(table, first + i);
        }
        expect_rows(session, request);
        put_in_flight(walk, session, request);
    }
    walk_drain(walk, session);
}
