/* SPDX-License-Identifier: Apache-2.0 */
/* bench_rpc_bags.c: pooled lookups and pushes over TCP, compared with GET and SET of the rows.
 *
 * rpc-pooled   bags/s of pooled lookups; the reference gets the rows and adds them up itself
 * rpc-push     bags/s of pushes by ticket; the reference has got the rows, takes the gradients off
 *              them, and sets them
 *
 * Both also have a figure of the bytes for each bag, both ways, as the kernel counts them for the
 * connection. The reference asks for each distinct row of a batch once, in a request for each
 * table, all in flight together. To find these rows costs it nothing. rpc-pooled-drawn has a
 * simpler reference, which asks for the row of every id as it was drawn.
 *
 * The model is the embedding part of the papers' RM1: 10 tables, 80 gathers a bag, 64 numbers a
 * row, 2,048 bags a table, ids uniform and Zipf (1.05). Optimizer SGD, all rows in DRAM. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/lib/bench_server.h"
#include "tests/bench/lib/trace.h"

#define TABLES        10
#define GATHERS       80
#define DIM           64
#define ROW_BYTES     (DIM * sizeof(float))
#define BATCHES       3 /* batches of ids, used round and round */
#define ZIPF          1.05
#define LEARNING_RATE 0.01F
#define SLACK_BYTES   (16 * MIB) /* of an arena, for segments and alignment */

/* Ids of a table in a batch, and the rows that the reference asks for. */
struct draw {
    uint64_t *ids;
    uint64_t *asked;
    uint32_t asked_count;
    uint32_t *places; /* of each id's row among those */
};

enum side { OURS, REFERENCE };

struct tally {
    double bytes_a_bag[BENCH_TURNS_MAX + 1]; /* of each turn, with the one that does not count */
    uint32_t turns;
};

struct model {
    struct bench_server server;
    uint64_t rows; /* per table */
    uint32_t tables, bags, ids;
    bool is_zipf, asks_as_drawn;
    struct draw draws[BATCHES][TABLES];
    uint32_t next; /* the next batch of ids */
    struct embtier *connection;
    struct embtier_table *handles[TABLES];
    struct embtier_batch *batch;           /* ours, of bags */
    struct embtier_batch *rows_of[TABLES]; /* the reference's */
    float *sums;                           /* the reference's bags of a table */
    float *gradients;                      /* of a table's bags */
    uint64_t step;
    struct tally tallies[2];
};

/* ---- Ids ---- */

static int compare_ids(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static uint32_t place_of(const struct draw *draw, uint64_t id)
{
    const uint64_t *const found =
        bsearch(&id, draw->asked, draw->asked_count, sizeof(id), compare_ids);

    return (uint32_t)(found - draw->asked);
}

static void find_distinct(struct draw *draw, uint32_t count)
{
    memcpy(draw->asked, draw->ids, count * sizeof(uint64_t));
    qsort(draw->asked, count, sizeof(uint64_t), compare_ids);
    draw->asked_count = 0;
    for (uint32_t i = 0; i < count; i++)
        if (i == 0 || draw->asked[i] != draw->asked[draw->asked_count - 1])
            draw->asked[draw->asked_count++] = draw->asked[i];
    for (uint32_t i = 0; i < count; i++)
        draw->places[i] = place_of(draw, draw->ids[i]);
}

static void take_as_drawn(struct model *model)
{
    for (uint32_t i = 0; i < BATCHES * model->tables; i++) {
        struct draw *const draw = &model->draws[i / model->tables][i % model->tables];

        memcpy(draw->asked, draw->ids, model->ids * sizeof(uint64_t));
        draw->asked_count = model->ids;
        for (uint32_t k = 0; k < model->ids; k++)
            draw->places[k] = k;
    }
    model->asks_as_drawn = true;
}

static void make_draws(struct model *model)
{
    const uint32_t count = BATCHES * TABLES * model->ids + TRACE_BATCH; /* rounded down */
    struct trace trace = { 0 };
    uint64_t random = 42;
    uint32_t at = 0;

    if (model->is_zipf)
        trace = trace_zipf((uint32_t)model->rows, count, ZIPF);
    for (uint32_t i = 0; i < BATCHES * model->tables; i++) {
        struct draw *const draw = &model->draws[i / model->tables][i % model->tables];

        draw->ids = bench_alloc(model->ids, sizeof(uint64_t));
        draw->asked = bench_alloc(model->ids, sizeof(uint64_t));
        draw->places = bench_alloc(model->ids, sizeof(uint32_t));
        for (uint32_t k = 0; k < model->ids; k++)
            draw->ids[k] = model->is_zipf ? trace.draws[at++] : bench_random(&random) % model->rows;
        find_distinct(draw, model->ids);
    }
    if (model->is_zipf)
        trace_free(&trace);
}

static void free_draws(struct model *model)
{
    for (uint32_t i = 0; i < BATCHES * model->tables; i++) {
        struct draw *const draw = &model->draws[i / model->tables][i % model->tables];

        free(draw->ids);
        free(draw->asked);
        free(draw->places);
    }
}

static const struct draw *next_draws(const struct model *model)
{
    return model->draws[model->next % BATCHES];
}

/* ---- Set-up ---- */

static void start_server(struct model *model)
{
    const uint64_t bytes = model->tables * model->rows * ROW_BYTES;
    const struct bench_server_shape shape = {
        .dram_bytes = bytes + bytes / 3 + 64 * MIB,
        .ticket_bytes = bench_scaled(768 * MIB, 32 * MIB),
        .batch_rows = 8 << 20,
        .optimizer = EMBTIER_OPTIMIZER_SGD,
        .listens = true,
    };

    bench_server_start(&model->server, &shape);
    bench_server_tables(&model->server, model->tables, model->rows, DIM);
    bench_touch_all(&model->server, EMBTIER_GET);
}

static void die_of(const struct model *model)
{
    bench_die("%s", embtier_message(model->connection));
}

static void make_batches(struct model *model)
{
    struct embtier_bag_part parts[TABLES] = { { 0 } };

    for (uint32_t t = 0; t < model->tables; t++) {
        struct embtier_part part = { .count = model->ids };
        char name[16];

        snprintf(name, sizeof(name), "t%u", t);
        if (embtier_table_open(model->connection, name, &part.table) != EMBTIER_OK)
            die_of(model);
        model->handles[t] = part.table;
        if (embtier_batch_new(model->connection, &part, 1, &model->rows_of[t]) != EMBTIER_OK)
            die_of(model);
        parts[t] = (struct embtier_bag_part){ .table = part.table,
                                              .count = model->ids,
                                              .bag_count = model->bags,
                                              .mode = EMBTIER_POOL_SUM };
    }
    if (embtier_batch_new_bags(model->connection, parts, model->tables, &model->batch) !=
        EMBTIER_OK)
        die_of(model);
}

static void connect_to(struct model *model)
{
    const uint64_t ours = model->ids * sizeof(uint64_t) + model->bags * (ROW_BYTES + 4);
    const uint64_t theirs = model->ids * (sizeof(uint64_t) + ROW_BYTES);

    model->connection = bench_server_connect(&model->server, BENCH_TCP,
                                             model->tables * (ours + theirs) + SLACK_BYTES);
    make_batches(model);
}

static struct model *set_up(bool is_zipf)
{
    struct model *const model = bench_alloc(1, sizeof(*model));
    uint64_t random = 7;

    model->is_zipf = is_zipf;
    model->rows = bench_scaled(1000000, 2000);
    model->tables = (uint32_t)MIN(bench_scaled(TABLES, 2), (uint64_t)TABLES);
    model->bags = (uint32_t)bench_scaled(2048, 8);
    model->ids = model->bags * GATHERS;
    model->sums = bench_alloc(model->bags, ROW_BYTES);
    model->gradients = bench_alloc(model->bags, ROW_BYTES);
    for (uint32_t i = 0; i < model->bags * DIM; i++)
        model->gradients[i] = (float)(bench_random(&random) >> 40) * 0x1p-34F; /* below 0.001 */
    make_draws(model);
    start_server(model);
    connect_to(model);
    return model;
}

static void clear(struct model *model)
{
    embtier_disconnect(model->connection);
    bench_server_done(&model->server);
    free_draws(model);
    free(model->sums);
    free(model->gradients);
    free(model);
}

/* ---- Ours ---- */

static void lay_out_bags(struct model *model)
{
    const struct draw *const draws = next_draws(model);

    for (uint32_t t = 0; t < model->tables; t++) {
        uint32_t *const offsets = embtier_batch_offsets(model->batch, t);

        memcpy(embtier_batch_ids(model->batch, t), draws[t].ids, model->ids * sizeof(uint64_t));
        for (uint32_t b = 0; b <= model->bags; b++)
            offsets[b] = b * GATHERS;
    }
}

static void look_up_bags(struct model *model)
{
    lay_out_bags(model);
    if (embtier_get_pooled(model->batch) != EMBTIER_OK)
        die_of(model);
}

static void have_ticket(struct model *model)
{
    lay_out_bags(model);
    if (embtier_get_pooled_ticket(model->batch) != EMBTIER_OK)
        die_of(model);
}

static void push_bags(struct model *model)
{
    struct embtier_push_options options = EMBTIER_PUSH_OPTIONS_INIT;

    options.learning_rate = LEARNING_RATE;
    options.step = ++model->step;
    for (uint32_t t = 0; t < model->tables; t++)
        memcpy(embtier_batch_gradients(model->batch, t), model->gradients, model->bags * ROW_BYTES);
    if (embtier_push(model->batch, &options) != EMBTIER_OK)
        die_of(model);
}

/* ---- The reference ---- */

static void ask_for_rows(struct model *model)
{
    const struct draw *const draws = next_draws(model);

    for (uint32_t t = 0; t < model->tables; t++) {
        struct embtier_batch *const batch = model->rows_of[t];

        if (embtier_batch_set_count(batch, 0, draws[t].asked_count) != EMBTIER_OK)
            die_of(model);
        memcpy(embtier_batch_ids(batch, 0), draws[t].asked,
               draws[t].asked_count * sizeof(uint64_t));
        bench_submit(batch, EMBTIER_GET);
    }
}

static void wait_for_all(struct model *model)
{
    for (uint32_t t = 0; t < model->tables; t++)
        bench_wait(model->rows_of[t]);
}

static void add_up(struct model *model, uint32_t table)
{
    const uint32_t *places = next_draws(model)[table].places;
    const float *const rows = embtier_batch_rows(model->rows_of[table], 0);

    memset(model->sums, 0, model->bags * ROW_BYTES);
    for (uint32_t b = 0; b < model->bags; b++) {
        float *restrict const sum = model->sums + (uint64_t)b * DIM;

        for (uint32_t i = 0; i < GATHERS; i++) {
            const float *restrict const row = rows + (uint64_t)*places++ * DIM;

            for (uint32_t d = 0; d < DIM; d++)
                sum[d] += row[d];
        }
    }
}

static void get_and_add_up(struct model *model)
{
    ask_for_rows(model);
    for (uint32_t t = 0; t < model->tables; t++) {
        bench_wait(model->rows_of[t]);
        add_up(model, t);
    }
}

static void have_rows(struct model *model)
{
    ask_for_rows(model);
    wait_for_all(model);
}

static void take_off(struct model *model, uint32_t table)
{
    const uint32_t *places = next_draws(model)[table].places;
    float *const rows = embtier_batch_rows(model->rows_of[table], 0);

    for (uint32_t b = 0; b < model->bags; b++) {
        const float *restrict const gradient = model->gradients + (uint64_t)b * DIM;

        for (uint32_t i = 0; i < GATHERS; i++) {
            float *restrict const row = rows + (uint64_t)*places++ * DIM;

            for (uint32_t d = 0; d < DIM; d++)
                row[d] -= LEARNING_RATE * gradient[d];
        }
    }
}

static void take_off_and_set(struct model *model)
{
    for (uint32_t t = 0; t < model->tables; t++) {
        take_off(model, t);
        bench_submit(model->rows_of[t], EMBTIER_SET);
    }
    wait_for_all(model);
}

/* ---- Turns ---- */

/* Both sides must have the same bags, or the figure would mean nothing. */
static void check(struct model *model)
{
    look_up_bags(model);
    ask_for_rows(model);
    for (uint32_t t = 0; t < model->tables; t++) {
        const float *const bags = embtier_batch_bags(model->batch, t);

        bench_wait(model->rows_of[t]);
        add_up(model, t);
        for (uint32_t i = 0; i < model->bags * DIM; i++)
            if (fabsf(bags[i] - model->sums[i]) > 1e-3F)
                bench_die("table %u: number %u of the bags is %g, and %g by GET", t, i,
                          (double)bags[i], (double)model->sums[i]);
    }
}

/* Repeats @step, each time after @prepare, which is not measured. Returns bags a second. */
static double take_turn(struct model *model, enum side side, void (*prepare)(struct model *model),
                        void (*step)(struct model *model))
{
    struct tally *const tally = &model->tallies[side];
    uint64_t bytes = 0, bags = 0;
    double spent = 0;

    do {
        uint64_t sent_before;
        double began;

        if (prepare)
            prepare(model);
        sent_before = bench_server_wire_bytes(&model->server);
        began = bench_now();
        step(model);
        spent += bench_now() - began;
        bytes += bench_server_wire_bytes(&model->server) - sent_before;
        bags += (uint64_t)model->tables * model->bags;
        model->next++;
    } while (spent < bench_settings.seconds);
    tally->bytes_a_bag[tally->turns++] = (double)bytes / (double)bags;
    return (double)bags / spent;
}

static double our_lookups(void *context)
{
    return take_turn(context, OURS, NULL, look_up_bags);
}

static double reference_lookups(void *context)
{
    return take_turn(context, REFERENCE, NULL, get_and_add_up);
}

static double our_pushes(void *context)
{
    return take_turn(context, OURS, have_ticket, push_bags);
}

static double reference_pushes(void *context)
{
    return take_turn(context, REFERENCE, have_rows, take_off_and_set);
}

struct sides {
    const char *name, *reference_name, *limit;
    bench_side *ours, *reference;
};

static void describe(const struct model *model, char *ret_text, size_t text_bytes)
{
    snprintf(ret_text, text_bytes, "%u tables of %llu rows, %u bags of %u ids each, %s; %s",
             model->tables, (unsigned long long)model->rows, model->bags, GATHERS,
             model->is_zipf ? "Zipf" : "uniform",
             model->asks_as_drawn ? "every id as drawn" : "each distinct row once");
}

/* Measures the rates, and then reports the bytes of the same turns. */
static void measure(struct model *model, const struct sides *sides)
{
    const char *const draw = model->is_zipf ? "zipf" : "uniform";
    struct bench_figure figure = { .unit = "bags/s",
                                   .limit = sides->limit,
                                   .reference_name = sides->reference_name };
    char name[64], options[128];

    memset(model->tallies, 0, sizeof(model->tallies));
    describe(model, options, sizeof(options));
    figure.reference_options = options;
    check(model);
    snprintf(name, sizeof(name), "%s-%s", sides->name, draw);
    figure.name = name;
    bench_compare(&figure, sides->ours, sides->reference, model, NULL);
    check(model);
    snprintf(name, sizeof(name), "%s-bytes-%s", sides->name, draw);
    figure.unit = "B/bag";
    figure.lower_is_better = true;
    figure.bar = 0.1;
    figure.limit = "ids and bags";
    bench_report(&figure, model->tallies[OURS].bytes_a_bag + 1,
                 model->tallies[REFERENCE].bytes_a_bag + 1, bench_settings.turns, NULL, NULL);
}

static void rpc_pooled(void)
{
    for (uint32_t is_zipf = 0; is_zipf < 2; is_zipf++) {
        struct model *const model = set_up(is_zipf);
        struct sides sides = { .name = "rpc-pooled",
                               .reference_name = "GET, and sums in the client",
                               .limit = "the lane's work on rows",
                               .ours = our_lookups,
                               .reference = reference_lookups };

        measure(model, &sides);
        take_as_drawn(model);
        sides.name = "rpc-pooled-drawn";
        measure(model, &sides);
        clear(model);
    }
}

static void rpc_push(void)
{
    for (uint32_t is_zipf = 0; is_zipf < 2; is_zipf++) {
        struct model *const model = set_up(is_zipf);

        measure(model, &(struct sides){ .name = "rpc-push",
                                        .reference_name = "SGD in the client, and SET",
                                        .limit = "the casting, and the lane's work on rows",
                                        .ours = our_pushes,
                                        .reference = reference_pushes });
        clear(model);
    }
}

int main(int argc, char **argv)
{
    const struct bench_entry entries[] = {
        { "rpc-pooled", rpc_pooled },
        { "rpc-push", rpc_push },
    };

    return bench_main(argc, argv, entries, ARRAY_LEN(entries));
}
