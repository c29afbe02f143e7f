/* SPDX-License-Identifier: Apache-2.0 */
/* Local reduction of a push by rows, before it is sent. The server would do the same first, by the
 * same kernels in the same order, so it ends up with the same bytes. The trainer does the work
 * instead of the server, to which several trainers may push at a time.
 *
 * An id's gradients are added up over all parts of its table. A sum within each part first would be
 * in another order. So parts are first sorted by table. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/batch/batch.h"
#include "client/lib/connection.h"
#include "client/lib/table.h"
#include "kernels/cpu/cast/cast.h"
#include "kernels/cpu/reduce/reduce.h"

struct ordered_part {
    const char *table; /* by name, because it may have been opened twice */
    uint32_t part;
};

/* Arrays have room for the table with the most ids; sums, for the table with the most numbers. */
struct coalescer {
    struct embtier_batch *batch;
    struct ordered_part *parts; /* by table, then by part number */
    struct cast_pair *pairs;   /* bag: index of the id among all of the table; position: its part */
    struct cast_pair *scratch; /* likewise */
    const float **places;      /* places of gradients, by bag */
    uint32_t *starts;          /* starts of runs */
    float *sums;
};

/* The parts of one table: parts[begin] up to, but not including, parts[end]. */
struct table_parts {
    uint32_t begin;
    uint32_t end;
    uint32_t dim;
    uint32_t id_count; /* over all parts; fewer than max_batch_rows */
};

static void coalescer_done(struct coalescer *c)
{
    free(c->parts);
    free(c->pairs);
    free(c->scratch);
    free(c->places);
    free(c->starts);
    free(c->sums);
}

static int compare_parts(const void *a, const void *b)
{
    const struct ordered_part *const one = a, *const other = b;
    const int by_table = strcmp(one->table, other->table);

    return by_table != 0 ? by_table : (one->part > other->part) - (one->part < other->part);
}

/* Moves @table to the next table; it is all zeros before the first call. False: there are no
 * more. */
static bool next_table(const struct coalescer *c, struct table_parts *table)
{
    const struct embtier_batch *const batch = c->batch;
    const uint32_t begin = table->end;

    if (begin == batch->part_count)
        return false;
    *table = (struct table_parts){
        .begin = begin,
        .end = begin,
        .dim = batch->parts[c->parts[begin].part].table->description.info.dim,
    };
    while (table->end < batch->part_count &&
           strcmp(c->parts[begin].table, c->parts[table->end].table) == 0)
        table->id_count += batch->parts[c->parts[table->end++].part].count;
    return true;
}

static enum embtier_err coalescer_init(struct coalescer *c, struct embtier_batch *batch)
{
    struct table_parts table = { 0 };
    uint64_t ids_max = 0;
    uint64_t numbers_max = 0;

    c->batch = batch;
    c->parts = calloc(batch->part_count + 1, sizeof(*c->parts));
    if (!c->parts)
        return err_set(&batch->server->message, EMBTIER_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < batch->part_count; i++)
        c->parts[i] = (struct ordered_part){ batch_table_name(batch, i), i };
    qsort(c->parts, batch->part_count, sizeof(*c->parts), compare_parts);
    while (next_table(c, &table)) {
        ids_max = MAX(ids_max, (uint64_t)table.id_count);
        numbers_max = MAX(numbers_max, (uint64_t)table.id_count * table.dim);
    }
    c->pairs = calloc(ids_max + 1, sizeof(*c->pairs));
    c->scratch = calloc(ids_max + 1, sizeof(*c->scratch));
    c->places = calloc(ids_max + 1, sizeof(*c->places));
    c->starts = calloc(ids_max + 1, sizeof(*c->starts));
    c->sums = calloc(numbers_max + 1, sizeof(*c->sums));
    if (!c->pairs || !c->scratch || !c->places || !c->starts || !c->sums)
        return err_set(&batch->server->message, EMBTIER_NO_MEMORY, "out of memory");
    return EMBTIER_OK;
}

static void gather(struct coalescer *c, const struct table_parts *table)
{
    uint32_t bag = 0;

    for (uint32_t i = table->begin; i < table->end; i++) {
        const uint32_t part = c->parts[i].part;
        const uint64_t *const ids = embtier_batch_ids(c->batch, part);
        const float *const gradients = embtier_batch_gradients(c->batch, part);

        for (uint32_t n = 0; n < c->batch->parts[part].count; n++, bag++) {
            c->pairs[bag] = (struct cast_pair){ .row = ids[n], .bag = bag, .position = part };
            c->places[bag] = gradients + (size_t)n * table->dim;
        }
    }
}

/* Puts each id back into the part that had it first. */
static void scatter(struct coalescer *c, const struct table_parts *table,
                    const struct cast_pair *pairs, uint32_t run_count)
{
    for (uint32_t i = table->begin; i < table->end; i++)
        c->batch->parts[c->parts[i].part].count = 0;
    for (uint32_t run = 0; run < run_count; run++) {
        const struct cast_pair *const pair = &pairs[c->starts[run]];
        const uint32_t at = c->batch->parts[pair->position].count++;

        embtier_batch_ids(c->batch, pair->position)[at] = pair->row;
        memcpy(embtier_batch_gradients(c->batch, pair->position) + (size_t)at * table->dim,
               c->sums + (size_t)run * table->dim, table->dim * sizeof(float));
    }
}

static void coalesce_table(struct coalescer *c, const struct table_parts *table)
{
    const struct cast_pair *sorted;
    struct reduce_batch reduce;

    gather(c, table);
    sorted = cast_sort(c->pairs, c->scratch, table->id_count);
    reduce = (struct reduce_batch){ .dim = table->dim,
                                    .bag_places = c->places,
                                    .bag_count = table->id_count,
                                    .pairs = sorted,
                                    .starts = c->starts,
                                    .run_count = cast_runs(sorted, table->id_count, c->starts),
                                    .rows = c->sums };
    reduce_runs(&reduce);
    scatter(c, table, sorted, reduce.run_count);
}

enum embtier_err embtier_batch_coalesce(struct embtier_batch *batch)
{
    _cleanup_(coalescer_done) struct coalescer c = { 0 };
    struct table_parts table = { 0 };

    if (batch->kind != BATCH_OF_GRADIENTS)
        return err_set(&batch->server->message, EMBTIER_INVALID,
                       "the batch was not made by embtier_batch_new_push()");
    TRY(batch_refuse_in_flight(batch));
    TRY(coalescer_init(&c, batch));
    while (next_table(&c, &table))
        if (table.id_count > 0)
            coalesce_table(&c, &table);
    return EMBTIER_OK;
}
