/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/synthetic/synthetic_trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "placement/synthetic/zipf.h"

#define ROWS_SIGMA 2.5
#define ROWS_MAX   0x1p40

/* A chunk of bags that is written at once; its ids fit one block. */
#define CHUNK_BAGS 4096u
#define CHUNK_IDS  TRACE_BLOCK_IDS_MAX
_Static_assert((int)SYNTHETIC_POOLING_FACTOR_MAX + 1 < CHUNK_IDS, "a chunk holds a bag");

/* Draws the rows of one table. */
struct source {
    uint64_t rows;
    uint64_t factor, offset; /* scatter ranks over the rows */
    struct zipf zipf;
    struct locality_table locality;
    struct random random;
};

struct generator {
    const struct synthetic_options *options;
    struct source *sources;
    uint32_t bag_ends[CHUNK_BAGS];
    uint64_t ids[CHUNK_IDS];
};

static void generator_free(struct generator *generator)
{
    free(generator->sources);
    free(generator);
}
DEFINE_CLEANUP(struct generator, generator_free)

/* ---- Shapes ---- */

/* Box and Muller. */
static double normal(struct random *random)
{
    const double radius = sqrt(-2 * log(1 - random_unit(random)));

    return radius * cos(2 * M_PI * random_unit(random));
}

void synthetic_shapes(const struct locality_published *published, uint64_t seed,
                      uint32_t table_count, uint64_t *ret_rows, double *ret_pooling_factors)
{
    const double mu = log(published->mean_table_rows) - ROWS_SIGMA * ROWS_SIGMA / 2;
    struct random random = { seed };

    for (uint32_t i = 0; i < table_count; i++) {
        double pooling;

        ret_rows[i] = (uint64_t)MAX(1.0, MIN(ROWS_MAX, exp(mu + ROWS_SIGMA * normal(&random))));
        do
            pooling = -published->mean_pooling_factor * log(1 - random_unit(&random));
        while (pooling > published->pooling_factor_max);
        ret_pooling_factors[i] = pooling;
    }
}

/* ---- Rows ---- */

static uint64_t greatest_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        const uint64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

/* Hot rows must not lie side by side, so rank r is row (r * factor + offset) modulo the rows. That
 * is one to one, as the factor has no divisor in common with the rows. */
static struct source source_make(const struct synthetic_options *options, uint32_t table)
{
    struct source source = { .rows = options->tables[table].rows };

    source.random.state = options->seed ^ (UINT64_C(0xd1342543de82ef95) * (table + 1));
    source.factor = 1 + random_below(&source.random, source.rows);
    while (greatest_divisor(source.factor, source.rows) != 1)
        source.factor++;
    source.offset = random_below(&source.random, source.rows);
    if (options->locality)
        source.locality = locality_table_make(options->locality, source.rows,
                                              options->pooling_factors[table], &source.random);
    else
        source.zipf = zipf_make(source.rows, options->zipf_exponent);
    return source;
}

static uint64_t source_draw(struct source *source, bool has_locality)
{
    const uint64_t rank = has_locality ? locality_draw(&source->locality, &source->random)
                                       : zipf_draw(&source->zipf, &source->random);

    return (uint64_t)(((unsigned __int128)rank * source->factor + source->offset) % source->rows);
}

/* Bags have the whole numbers around the pooling factor as their lengths. */
static uint32_t bag_length(double pooling_factor, struct random *random)
{
    const double whole = floor(pooling_factor);

    return (uint32_t)whole + (random_unit(random) < pooling_factor - whole ? 1 : 0);
}

/* ---- The trace ---- */

static enum embtier_err check(const struct synthetic_options *options, struct err_msg *msg)
{
    if (!(options->zipf_exponent >= 0 && options->zipf_exponent <= SYNTHETIC_ZIPF_EXPONENT_MAX))
        return err_set(msg, EMBTIER_INVALID, "Zipf exponent %g; allowed: 0 to %g",
                       options->zipf_exponent, SYNTHETIC_ZIPF_EXPONENT_MAX);
    for (uint32_t i = 0; i < options->table_count; i++) {
        const double pooling = options->pooling_factors[i];

        if (options->tables[i].rows == 0)
            return err_set(msg, EMBTIER_INVALID, "table %" PRIu32 " needs 1 row or more", i);
        if (!(pooling >= 0 && pooling <= SYNTHETIC_POOLING_FACTOR_MAX))
            return err_set(msg, EMBTIER_INVALID,
                           "table %" PRIu32 ": pooling factor %g; allowed: 0 to %g", i, pooling,
                           SYNTHETIC_POOLING_FACTOR_MAX);
    }
    return EMBTIER_OK;
}

/* Fills bags until the chunk is full or @bags are there. */
static void fill_chunk(struct generator *generator, uint32_t table, uint32_t bags,
                       struct trace_lookups *lookups)
{
    const struct synthetic_options *const options = generator->options;
    struct source *const source = &generator->sources[table];

    lookups->bag_count = 0;
    lookups->id_count = 0;
    while (lookups->bag_count < MIN(bags, CHUNK_BAGS) &&
           lookups->id_count + options->pooling_factors[table] + 1 < CHUNK_IDS) {
        uint32_t left = bag_length(options->pooling_factors[table], &source->random);

        for (; left > 0; left--)
            generator->ids[lookups->id_count++] = source_draw(source, options->locality != NULL);
        generator->bag_ends[lookups->bag_count++] = lookups->id_count;
    }
}

static enum embtier_err write_batch(struct generator *generator, uint64_t batch, uint32_t table,
                                    struct trace_writer *writer, uint64_t *lookup_count,
                                    struct err_msg *msg)
{
    struct trace_lookups lookups = { .batch = batch,
                                     .table = table,
                                     .is_update = generator->options->is_update,
                                     .bag_ends = generator->bag_ends,
                                     .ids = generator->ids };

    for (uint32_t left = generator->options->batch_bags; left > 0; left -= lookups.bag_count) {
        fill_chunk(generator, table, left, &lookups);
        TRY(trace_writer_add(writer, &lookups, msg));
        *lookup_count += lookups.id_count;
    }
    return EMBTIER_OK;
}

static enum embtier_err generator_new(const struct synthetic_options *options,
                                      struct generator **ret_generator, struct err_msg *msg)
{
    _cleanup_(generator_freep) struct generator *generator = calloc(1, sizeof(*generator));

    if (generator)
        generator->sources = calloc(options->table_count, sizeof(*generator->sources));
    if (!generator || !generator->sources)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory for %" PRIu32 " tables",
                       options->table_count);
    generator->options = options;
    for (uint32_t i = 0; i < options->table_count; i++)
        generator->sources[i] = source_make(options, i);
    *ret_generator = TAKE(generator);
    return EMBTIER_OK;
}

enum embtier_err synthetic_trace_write(const char *path, const struct synthetic_options *options,
                                       synthetic_progress_fn progress, void *context,
                                       uint64_t *ret_lookups, struct err_msg *msg)
{
    _cleanup_(trace_writer_freep) struct trace_writer *writer = NULL;
    _cleanup_(generator_freep) struct generator *generator = NULL;
    const uint64_t batch_bags = (uint64_t)options->table_count * options->batch_bags;
    uint64_t lookups = 0;

    TRY(check(options, msg));
    TRY(trace_writer_new(path, options->tables, options->table_count, &writer, msg));
    TRY(generator_new(options, &generator, msg));
    for (uint64_t batch = 0; batch < options->batches; batch++)
        for (uint32_t table = 0; table < options->table_count; table++) {
            TRY(write_batch(generator, batch, table, writer, &lookups, msg));
            if (progress)
                progress(context, batch * batch_bags + (table + UINT64_C(1)) * options->batch_bags,
                         options->batches * batch_bags, "bags");
        }
    TRY(trace_writer_finish(writer, msg));
    *ret_lookups = lookups;
    return EMBTIER_OK;
}
