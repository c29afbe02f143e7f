/* SPDX-License-Identifier: Apache-2.0 */
/* bench_kernels.c: training on the CPU, without a server.
 *
 * expand-vs-cast: turns the gradients of a batch's bags into gradients of its rows, by casting
 * and reducing (kernels/cpu/cast/cast.h, kernels/cpu/reduce/reduce.h). The reference is the
 * method that casting replaces: it expands gradients to one per pair, sorts the pairs, and
 * coalesces the gradients. Both sides use the same sort and the same loops to add up, and must
 * give the same bits; only the expanding differs. The shapes are RM1's and RM2's of Kwon et al.,
 * "Tensor Casting" (HPCA 2021): 10 and 40 tables of 80 gathers a bag. Here they have 64 columns
 * and batches of 2,048 bags, one table after another. A turn is one batch.
 *
 * expand-vs-cast-bytes, -all-bytes: the bytes of gradients that each side moves, and those of
 * pairs as well, by the formulas at count_gradient_bytes(). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cast/cast.h"
#include "kernels/cpu/reduce/reduce.h"
#include "tests/bench/lib/bench.h"
#include "tests/bench/lib/trace.h"

#define DIM     64
#define GATHERS 80

struct shape {
    const char *name;
    uint32_t tables;
    double exponent; /* of Zipf's distribution; 0: uniform */
};

static const struct shape shapes[] = {
    { "rm1-zipf", 10, 1.05 },
    { "rm1-uniform", 10, 0 },
    { "rm2-zipf", 40, 1.05 },
    { "rm2-uniform", 40, 0 },
};

struct setting {
    uint32_t bag_count;
    uint32_t pair_count; /* per table */
    float *bags;         /* gradients of bags; all tables share them, which changes no figure */
    float *expanded;     /* one per pair */
    float *rows;         /* results */
    struct cast_pair *pairs, *scratch;
    uint32_t *starts;
    /* For the present shape: */
    uint32_t table_count;
    struct trace trace;  /* ids of all tables, one table after another */
    uint64_t run_count;  /* in all tables */
    double cast_seconds; /* in all our turns; casting may happen before there are gradients */
    double reduce_seconds;
};

static struct setting *setting_new(void)
{
    struct setting *const s = bench_alloc(1, sizeof(*s));
    uint64_t random = 1;

    s->bag_count = (uint32_t)bench_scaled(2048, 64);
    s->pair_count = s->bag_count * GATHERS;
    s->bags = bench_pages((uint64_t)s->bag_count * DIM * sizeof(float));
    s->expanded = bench_pages((uint64_t)s->pair_count * DIM * sizeof(float));
    s->rows = bench_pages((uint64_t)s->pair_count * DIM * sizeof(float));
    s->pairs = bench_pages((uint64_t)s->pair_count * sizeof(*s->pairs));
    s->scratch = bench_pages((uint64_t)s->pair_count * sizeof(*s->scratch));
    s->starts = bench_alloc((uint64_t)s->pair_count + 1, sizeof(*s->starts));
    for (uint64_t i = 0; i < (uint64_t)s->bag_count * DIM; i++)
        s->bags[i] = (float)(int32_t)(bench_random(&random) >> 40) * 0x1p-24f - 0.5f;
    return s;
}

static void shape_begin(struct setting *s, const struct shape *shape)
{
    const uint64_t pairs = (uint64_t)shape->tables * s->pair_count;

    s->table_count = shape->tables;
    s->trace = trace_zipf((uint32_t)bench_scaled(1000000, 1000),
                          (uint32_t)align_up(pairs, TRACE_BATCH), shape->exponent);
    s->cast_seconds = s->reduce_seconds = 0;
}

/* Returns a table's pairs, sorted, and their runs. @by_position: the gradients to add up lie by
 * position and not by bag. */
static const struct cast_pair *sort_table(struct setting *s, uint32_t table, bool by_position,
                                          uint32_t *ret_run_count)
{
    const uint32_t *const ids = s->trace.draws + (uint64_t)table * s->pair_count;
    const struct cast_pair *sorted;

    for (uint32_t i = 0; i < s->pair_count; i++)
        s->pairs[i] = (struct cast_pair){ .row = ids[i],
                                          .bag = by_position ? i : i / GATHERS,
                                          .position = i };
    sorted = cast_sort(s->pairs, s->scratch, s->pair_count);
    *ret_run_count = cast_runs(sorted, s->pair_count, s->starts);
    return sorted;
}

static void add_up(struct setting *s, const struct cast_pair *sorted, uint32_t run_count,
                   const float *gradients, uint32_t gradient_count)
{
    reduce_runs(&(struct reduce_batch){ .dim = DIM,
                                        .bags = gradients,
                                        .bag_count = gradient_count,
                                        .pairs = sorted,
                                        .starts = s->starts,
                                        .run_count = run_count,
                                        .rows = s->rows });
}

static uint32_t cast_and_reduce(struct setting *s, uint32_t table)
{
    const double start = bench_now();
    uint32_t run_count;
    const struct cast_pair *const sorted = sort_table(s, table, false, &run_count);
    const double casted = bench_now();

    add_up(s, sorted, run_count, s->bags, s->bag_count);
    s->cast_seconds += casted - start;
    s->reduce_seconds += bench_now() - casted;
    return run_count;
}

static uint32_t expand_and_coalesce(struct setting *s, uint32_t table)
{
    uint32_t run_count;
    const struct cast_pair *sorted;

    for (uint32_t i = 0; i < s->pair_count; i++)
        memcpy(s->expanded + (uint64_t)i * DIM, s->bags + (uint64_t)(i / GATHERS) * DIM,
               DIM * sizeof(float));
    sorted = sort_table(s, table, true, &run_count);
    add_up(s, sorted, run_count, s->expanded, s->pair_count);
    return run_count;
}

/* Runs one batch; returns pairs a second. */
static double turn(struct setting *s, uint32_t (*backward)(struct setting *s, uint32_t table))
{
    const double start = bench_now();

    s->run_count = 0;
    for (uint32_t table = 0; table < s->table_count; table++)
        s->run_count += backward(s, table);
    return (double)s->pair_count * s->table_count / (bench_now() - start);
}

static double ours(void *context)
{
    return turn(context, cast_and_reduce);
}

static double reference(void *context)
{
    return turn(context, expand_and_coalesce);
}

/* Ends the program if the two sides' results for the last table differ. */
static void compare_results(struct setting *s)
{
    const uint64_t bytes = (uint64_t)cast_and_reduce(s, s->table_count - 1) * DIM * sizeof(float);
    float *const kept = bench_alloc(1, bytes);

    memcpy(kept, s->rows, bytes);
    memset(s->rows, 0, bytes);
    (void)expand_and_coalesce(s, s->table_count - 1);
    if (memcmp(kept, s->rows, bytes) != 0)
        bench_die("expand-vs-cast: the two sides differ");
    free(kept);
}

/* The bytes loaded and stored in a batch, in whatever cache they are found. With n pairs, r rows
 * that have a gradient, and gradients of g bytes:
 *
 *   gradients  both sides   n g loaded and r g stored, to add up
 *              expanding    n g loaded and n g stored before that
 *   pairs      both sides   16 n stored; 32 n for each of the sort's passes of 11 bits;
 *                           16 n loaded each time to look for differing bits, to count,
 *                           to find the runs, and to add up */
struct bytes {
    double ours, reference;
};

static struct bytes count_gradient_bytes(const struct setting *s)
{
    const double n = (double)s->pair_count * s->table_count;
    const double g = DIM * sizeof(float);
    const double both = n * g + (double)s->run_count * g;

    return (struct bytes){ both, both + 2 * n * g };
}

static struct bytes count_all_bytes(const struct setting *s)
{
    const double n = (double)s->pair_count * s->table_count;
    const double passes = ceil(log2(s->trace.ids) / 11);
    const double pairs = n * (16 + passes * 32 + 4 * 16);
    const struct bytes gradients = count_gradient_bytes(s);

    return (struct bytes){ pairs + gradients.ours, pairs + gradients.reference };
}

static void say_counts(void *context, json_t *figure)
{
    const struct setting *const s = context;

    json_object_set_new(figure, "pairs", json_integer((json_int_t)s->pair_count * s->table_count));
    json_object_set_new(figure, "rows", json_integer((json_int_t)s->run_count));
    json_object_set_new(figure, "share_of_time_casting",
                        json_real(s->cast_seconds / (s->cast_seconds + s->reduce_seconds)));
}

static void report_bytes(const char *name, struct setting *s, struct bytes bytes, double bar)
{
    bench_report(&(struct bench_figure){ .name = name,
                                         .unit = "bytes",
                                         .lower_is_better = true,
                                         .bar = bar,
                                         .limit = "a gradient loaded per pair, one stored per row",
                                         .reference_name = "expand, sort, coalesce",
                                         .reference_options = "counted, not measured" },
                 &bytes.ours, &bytes.reference, 1, say_counts, s);
}

static void run_shape(struct setting *s, const struct shape *shape)
{
    char name[64];

    shape_begin(s, shape);
    compare_results(s);
    snprintf(name, sizeof(name), "expand-vs-cast-%s", shape->name);
    bench_compare(&(struct bench_figure){ .name = name,
                                          .unit = "pairs/s",
                                          .limit = "memory bandwidth of one core",
                                          .reference_name = "expand, sort, coalesce",
                                          .reference_options = "same sort, same loops, 1 thread" },
                  ours, reference, s, say_counts);
    snprintf(name, sizeof(name), "expand-vs-cast-bytes-%s", shape->name);
    report_bytes(name, s, count_gradient_bytes(s), 0.5);
    snprintf(name, sizeof(name), "expand-vs-cast-all-bytes-%s", shape->name);
    report_bytes(name, s, count_all_bytes(s), 0);
    trace_free(&s->trace);
}

static void expand_vs_cast(void)
{
    struct setting *const s = setting_new();

    for (uint32_t i = 0; i < ARRAY_LEN(shapes); i++)
        run_shape(s, &shapes[i]);
    free(s->starts);
    free(s); /* memory of bench_pages() stays until the end */
}

int main(int argc, char **argv)
{
    const struct bench_entry entries[] = {
        { "expand-vs-cast", expand_vs_cast },
    };

    return bench_main(argc, argv, entries, ARRAY_LEN(entries));
}
