/* SPDX-License-Identifier: Apache-2.0 */
/* Pooled lookups of the random walk: bags of one row each, with empty ones between them, and
 * bags of many rows, some of which take several waves.
 *
 * A bag of one row must be one of the versions that a GET of it might see. A bag of several rows
 * is checked only if the version of each row is known. It must then be their sum, mean or
 * maximum in the order of the ids, to the bit. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "kernels/cpu/cast/dtype.h"
#include "tests/integration/walk.h"

#define BAGS_BYTES (256 << 10)
#define BAGS_MOST  (WALK_BATCH_ROWS / WALK_PARTS)

void walk_pick_bags(struct walk *walk, struct embtier_bag_part *part)
{
    const uint32_t bag_bytes = embtier_table_info(part->table)->dim * (uint32_t)sizeof(float);
    const uint32_t most = MIN(MAX(BAGS_BYTES / bag_bytes, 1u), (uint32_t)BAGS_MOST);
    const uint32_t way = walk_pick(walk, 3);

    part->mode = (enum embtier_pool)(EMBTIER_POOL_SUM + walk_pick(walk, EMBTIER_POOL_MAX));
    part->weighted = part->mode != EMBTIER_POOL_MAX && walk_chance(walk, 50);
    part->bag_count = 1 + walk_pick(walk, way == 0 ? 4 : part->count + 1);
    if (way == 1)
        part->bag_count += part->count; /* leaves room for empty ones */
    part->bag_count = MIN(part->bag_count, most);
    if (part->count == 0 && walk_chance(walk, 50))
        part->bag_count = 0;
}

void walk_cut_bags(struct walk *walk, const struct walk_request *request, uint32_t p)
{
    static const float many[] = { 1, 1, 0.5f, -1.5f, 3.3f };
    const uint32_t count = embtier_batch_count(request->batch, p);
    const uint32_t bag_count = embtier_batch_bag_count(request->batch, p);
    const uint32_t most = bag_count >= count ? 1 : 2 * count / bag_count;
    const uint32_t kinds = walk_chance(walk, 50) ? 1 : ARRAY_LEN(many);
    uint32_t *const offsets = embtier_batch_offsets(request->batch, p);
    float *const weights = embtier_batch_weights(request->batch, p);

    offsets[0] = 0;
    for (uint32_t b = 0; b < bag_count; b++) {
        const uint32_t left = count - offsets[b];
        const uint32_t length = most > 1 ? walk_pick(walk, most + 1) : walk_chance(walk, 80);

        offsets[b + 1] = offsets[b] + (b + 1 == bag_count ? left : MIN(left, length));
    }
    for (uint32_t i = 0; weights && i < count; i++)
        weights[i] = many[walk_pick(walk, kinds)];
}

void walk_spoil_bags(struct walk *walk, struct walk_request *request)
{
    const uint32_t p = walk_pick(walk, request->part_count);
    const uint32_t count = embtier_batch_count(request->batch, p);
    const uint32_t bag_count = embtier_batch_bag_count(request->batch, p);
    uint32_t *const offsets = embtier_batch_offsets(request->batch, p);
    const uint32_t at = walk_chance(walk, 30) ? bag_count : walk_pick(walk, bag_count + 1);
    const uint32_t next = at < bag_count ? offsets[at + 1] : count;

    if (at == bag_count && count > 0 && walk_chance(walk, 50))
        offsets[at] = walk_pick(walk, count); /* offsets end early, or decrease */
    else
        offsets[at] = walk_chance(walk, 50) ? next + 1 : UINT32_MAX - walk_pick(walk, 2);
    request->refused = true;
    request->err = EMBTIER_BAG_RANGE;
}

/* ---- Answers ---- */

struct bag {
    struct model_table *table;
    enum embtier_pool mode;
    const struct walk_row *rows;
    const float *weights; /* or NULL */
    uint32_t count;
};

static uint32_t high_of(const struct bag *bag, uint32_t i)
{
    return MIN(bag->rows[i].high, (uint32_t)bag->table->rows[bag->rows[i].row].newest);
}

static bool is_known(const struct bag *bag)
{
    for (uint32_t i = 0; i < bag->count; i++)
        if (bag->rows[i].low != high_of(bag, i))
            return false;
    return true;
}

/* Computes the bag for version @first of its first row, and the oldest version of each other
 * row. */
static void pool(const struct bag *bag, uint32_t first, float *ret_sums)
{
    const uint32_t dim = bag->table->spec.dim;

    memset(ret_sums, 0, dim * sizeof(float));
    for (uint32_t i = 0; i < bag->count; i++)
        model_pool(bag->table, bag->rows[i].row, i == 0 ? first : bag->rows[i].low, bag->mode,
                   bag->weights ? bag->weights[i] : 1, i, ret_sums);
    for (uint32_t c = 0; c < dim && bag->mode == EMBTIER_POOL_MEAN && bag->count > 1; c++)
        ret_sums[c] /= (float)bag->count;
}

/* Returns the first column that differs, or @dim. In a sum of two NaNs the processor chooses
 * whose bits remain, so any NaN is right. */
static uint32_t differs_at(const struct bag *bag, const float *wanted, const float *got)
{
    const uint32_t dim = bag->table->spec.dim;

    if (memcmp(wanted, got, dim * sizeof(float)) == 0)
        return dim;
    for (uint32_t c = 0; c < dim; c++)
        if (f32_bits(wanted[c]) != f32_bits(got[c]) &&
            !(bag->count > 1 && isnan(wanted[c]) && isnan(got[c])))
            return c;
    return dim;
}

static void wrong_bag(struct walk *walk, const struct walk_session *session, const struct bag *bag,
                      uint32_t number, float *wanted, const float *got)
{
    const struct table_spec *const spec = &bag->table->spec;
    uint32_t c;

    pool(bag, bag->count > 0 ? bag->rows[0].low : 0, wanted);
    c = differs_at(bag, wanted, got);
    walk_fail(walk,
              "session %u: table %s (id %u, dim %u, dtype %d): bag %u of %u rows, mode %d%s, the "
              "first row %" PRIu64 ", version %u to %u: column %u is %a, not %a",
              session->number, spec->name, bag->table->table_id, spec->dim, (int)spec->dtype,
              number, bag->count, (int)bag->mode, bag->weights ? " with weights" : "",
              bag->count > 0 ? model_id(bag->table, bag->rows[0].row) : 0,
              bag->count > 0 ? bag->rows[0].low : 0, bag->count > 0 ? high_of(bag, 0) : 0, c,
              (double)got[c], (double)wanted[c]);
}

static void check_bag(struct walk *walk, const struct walk_session *session, const struct bag *bag,
                      uint32_t number, const float *got)
{
    static float wanted[EMBTIER_DIM_MAX];
    const uint32_t high = bag->count > 0 ? high_of(bag, 0) : 0;
    uint32_t version = bag->count > 0 ? bag->rows[0].low : 0;

    if (bag->count > 1 && !is_known(bag)) {
        walk->bags_unknown++;
        return;
    }
    for (;; version++) {
        if (version > high)
            wrong_bag(walk, session, bag, number, wanted, got);
        pool(bag, version, wanted);
        if (differs_at(bag, wanted, got) == bag->table->spec.dim)
            break;
    }
    for (uint32_t i = 0; i < bag->count; i++)
        model_settle(bag->table, bag->rows[i].row, i == 0 ? version : bag->rows[i].low);
    walk->bags_checked++;
}

void walk_check_bags(struct walk *walk, const struct walk_session *session,
                     const struct walk_request *request, uint32_t p, const struct walk_row *rows)
{
    const uint32_t *const offsets = embtier_batch_offsets(request->batch, p);
    const float *const weights = embtier_batch_weights(request->batch, p);
    const float *got = embtier_batch_bags(request->batch, p);

    for (uint32_t b = 0; b < embtier_batch_bag_count(request->batch, p); b++) {
        const struct bag bag = { .table = request->tables[p],
                                 .mode = request->modes[p],
                                 .rows = rows + offsets[b],
                                 .weights = weights ? weights + offsets[b] : NULL,
                                 .count = offsets[b + 1] - offsets[b] };

        check_bag(walk, session, &bag, b, got);
        got += bag.table->spec.dim;
    }
}
