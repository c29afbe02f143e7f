/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/lib/plans/reference_plans.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/lib/bench.h"

#define PARTS  8
#define ROUNDS 2 /* of TorchRec's partitioner, with the times of its own answer */

/* Tables that get places, one after the other. */
struct packing {
    const struct planning *p;
    uint64_t rooms[MODEL_MEMORIES_MAX][MODEL_GPUS_MAX]; /* bytes; a shared memory's is the first */
    double loads[MODEL_GPUS_MAX];
    uint32_t *places;
};

/* A table, and the number by which it is sorted. */
struct sorted_table {
    double key;
    uint64_t bytes;
    uint32_t table;
};

static const char *const keys[] = {
#define X(name, key, text) [REFERENCE_##name] = key,
    REFERENCE_PLAN_TABLE(X)
#undef X
};
static const char *const texts[] = {
#define X(name, key, text) [REFERENCE_##name] = text,
    REFERENCE_PLAN_TABLE(X)
#undef X
};

const char *reference_plan_key(enum reference_plan plan)
{
    return keys[plan];
}

const char *reference_plan_text(enum reference_plan plan)
{
    return texts[plan];
}

static uint32_t table_count(const struct planning *p)
{
    return p->workload->table_count;
}

static uint64_t bytes_of(const struct planning *p, uint32_t table)
{
    return model_table_bytes(&p->tables[table]);
}

static double time_of(const struct planning *p, uint32_t table, uint32_t memory)
{
    return p->times_s[(uint64_t)table * p->model.memory_count + memory];
}

/* ---- Packing ---- */

/* @part: eighths of the tier, for arrays. */
static void packing_begin(struct packing *k, const struct planning *p, uint32_t part,
                          uint32_t *places)
{
    *k = (struct packing){ .p = p, .places = places };
    for (uint32_t m = 0; m < p->model.memory_count; m++)
        for (uint32_t g = 0; g < p->model.gpu_count; g++)
            k->rooms[m][g] = p->memories[m].capacity_bytes;
    k->rooms[machine_first_tier(p->machine)][0] = p->tier_bytes[0] / PARTS * part;
}

static uint64_t *room_of(struct packing *k, uint32_t memory, uint32_t gpu)
{
    return &k->rooms[memory][k->p->memories[memory].shared ? 0 : gpu];
}

/* Puts a table into a memory, for the GPU with the least load that has room. False: none has. */
static bool put(struct packing *k, uint32_t table, uint32_t memory, double load)
{
    const bool is_cache = memory == machine_cache(k->p->machine);
    const uint64_t bytes = is_cache ? 0 : bytes_of(k->p, table);
    uint32_t best = MODEL_ANY;

    if (!is_cache && k->p->workload->tables[table].array_bytes == 0)
        return false;
    for (uint32_t g = 0; g < k->p->model.gpu_count; g++)
        if (*room_of(k, memory, g) >= bytes && (best == MODEL_ANY || k->loads[g] < k->loads[best]))
            best = g;
    if (best == MODEL_ANY)
        return false;
    *room_of(k, memory, best) -= bytes;
    k->loads[best] += load;
    k->places[table] = model_place(&k->p->model, memory, best);
    return true;
}

/* Falling keys, then falling bytes, then rising numbers. */
static int compare(const void *a, const void *b)
{
    const struct sorted_table *const x = a, *const y = b;

    if (x->key != y->key)
        return x->key < y->key ? 1 : -1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return (x->table > y->table) - (x->table < y->table);
}

static void sort(struct sorted_table *order, uint32_t count)
{
    qsort(order, count, sizeof(*order), compare);
}

/* ---- Ways with one pass over all tables ---- */

static double read_bytes(const struct planning *p, uint32_t table)
{
    return p->workload->tables[table].lookups * p->workload->tables[table].weight_bytes;
}

/* The load of a GPU that a table adds. */
static double load_of(const struct planning *p, enum reference_plan plan, uint32_t table)
{
    if (plan == REFERENCE_CACHED)
        return time_of(p, table, machine_cache(p->machine));
    return plan == REFERENCE_SIZES ? (double)bytes_of(p, table) : read_bytes(p, table);
}

/* Gives each table in turn the fastest memory with room. The cache has room for all. */
static void pack(struct packing *k, enum reference_plan plan, struct sorted_table *order)
{
    const uint32_t cache = machine_cache(k->p->machine);

    for (uint32_t i = 0; i < table_count(k->p); i++) {
        const double load = load_of(k->p, plan, i);

        order[i] = (struct sorted_table){ plan == REFERENCE_SIZES ? -load : load, 0, i };
    }
    sort(order, table_count(k->p));
    for (uint32_t i = 0; i < table_count(k->p); i++) {
        uint32_t memory = plan == REFERENCE_CACHED ? cache : 0;

        while (!put(k, order[i].table, memory, load_of(k->p, plan, order[i].table)))
            memory++;
    }
}

/* ---- TorchRec ---- */

/* Chooses memories: the @outside largest tables are not in HBM, and of those the largest are behind
 * the cache, so that the others have room in arrays. @sizes: the largest first. */
static void propose(const struct planning *p, const struct sorted_table *sizes, uint32_t outside,
                    uint64_t array_bytes, uint32_t *ret_memories)
{
    const uint32_t first = machine_first_tier(p->machine);
    uint64_t bytes = 0;

    for (uint32_t i = table_count(p); i-- > 0;) {
        uint32_t memory = machine_cache(p->machine);

        if (p->workload->tables[sizes[i].table].array_bytes > 0) {
            if (i >= outside)
                memory = 0;
            else if (sizes[i].bytes <= array_bytes - bytes)
                memory = first;
        }
        if (memory == first)
            bytes += sizes[i].bytes;
        ret_memories[sizes[i].table] = memory;
    }
}

/* Deals the tables to GPUs. Returns the time of the slowest one; INFINITY: a table has no room. */
static double partition(struct packing *k, const uint32_t *memories, struct sorted_table *order)
{
    double largest_s = 0;

    for (uint32_t i = 0; i < table_count(k->p); i++)
        order[i] = (struct sorted_table){ time_of(k->p, i, memories[i]), bytes_of(k->p, i), i };
    sort(order, table_count(k->p));
    for (uint32_t i = 0; i < table_count(k->p); i++)
        if (!put(k, order[i].table, memories[order[i].table], order[i].key))
            return INFINITY;
    for (uint32_t g = 0; g < k->p->model.gpu_count; g++)
        largest_s = MAX(largest_s, k->loads[g]);
    return largest_s;
}

static bool fits_in_hbm(const struct planning *p, const uint32_t *memories)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < table_count(p); i++)
        bytes += memories[i] == 0 ? bytes_of(p, i) : 0;
    return bytes <= p->memories[0].capacity_bytes * p->model.gpu_count;
}

/* Writes the places of the best proposal. False: none fits. */
static bool pack_as_torchrec(const struct planning *p, uint32_t part, struct sorted_table *order,
                             uint32_t *ret_places)
{
    const uint32_t count = table_count(p);
    struct sorted_table *const sizes = bench_alloc(count, sizeof(*sizes));
    uint32_t *const memories = bench_alloc(count, sizeof(*memories));
    uint32_t *const places = bench_alloc(count, sizeof(*places));
    struct packing k;
    double best_s = INFINITY;

    for (uint32_t i = 0; i < count; i++)
        sizes[i] = (struct sorted_table){ (double)bytes_of(p, i), bytes_of(p, i), i };
    sort(sizes, count);
    for (uint32_t outside = 0; outside <= count; outside++) {
        double time_s;

        packing_begin(&k, p, part, places);
        propose(p, sizes, outside, k.rooms[machine_first_tier(p->machine)][0], memories);
        time_s = fits_in_hbm(p, memories) ? partition(&k, memories, order) : INFINITY;
        if (time_s < best_s) {
            best_s = time_s;
            memcpy(ret_places, places, count * sizeof(*places));
        }
    }
    free(sizes);
    free(memories);
    free(places);
    return isfinite(best_s);
}

/* ---- All ---- */

/* Sets the times of @p to those with all tables behind the cache. */
static enum embtier_err set_cached_times(struct planning *p, struct evaluation *ret_evaluation,
                                         uint32_t *places, struct err_msg *msg)
{
    for (uint32_t i = 0; i < table_count(p); i++)
        places[i] = model_place(&p->model, machine_cache(p->machine), 0);
    return planning_evaluate(p, places, ret_evaluation, msg);
}

/* Packs with the times of @p. False: nothing fits. */
static bool make(const struct planning *p, enum reference_plan plan, uint32_t part,
                 struct sorted_table *order, uint32_t *places)
{
    struct packing k;

    if (plan == REFERENCE_TORCHREC)
        return pack_as_torchrec(p, part, order, places);
    packing_begin(&k, p, part, places);
    pack(&k, plan, order);
    return true;
}

struct best {
    uint32_t *places; /* of the caller */
    struct evaluation evaluation;
    bool is_there;
};

/* Tries a part of the tier, and keeps what is better than the best. */
static enum embtier_err try_part(struct planning *p, enum reference_plan plan, uint32_t part,
                                 struct sorted_table *order, uint32_t *places, struct best *best,
                                 struct err_msg *msg)
{
    const uint32_t rounds = plan == REFERENCE_TORCHREC ? ROUNDS : 1;
    struct evaluation evaluation;

    TRY(set_cached_times(p, &evaluation, places, msg));
    for (uint32_t i = 0; i < rounds && make(p, plan, part, order, places); i++) {
        TRY(planning_evaluate(p, places, &evaluation, msg));
        if (best->is_there && !evaluation_is_better(&evaluation, &best->evaluation))
            continue;
        memcpy(best->places, places, table_count(p) * sizeof(*places));
        best->evaluation = evaluation;
        best->is_there = true;
    }
    return EMBTIER_OK;
}

enum embtier_err reference_plan_make(struct planning *p, enum reference_plan plan,
                                     uint32_t *ret_places, struct evaluation *ret_evaluation,
                                     struct err_msg *msg)
{
    _cleanup_(freep) struct sorted_table *order = calloc(table_count(p), sizeof(*order));
    _cleanup_(freep) uint32_t *places = calloc(table_count(p), sizeof(*places));
    struct best best = { .places = ret_places };
    const uint32_t parts = plan == REFERENCE_CACHED ? 0 : PARTS;

    assert(p->machine->tier_count == 1 && p->machine->gpu_count > 0);
    if (!order || !places)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    for (uint32_t part = 0; part <= parts; part++)
        TRY(try_part(p, plan, part, order, places, &best, msg));
    if (!best.is_there)
        return err_set(msg, EMBTIER_NO_SPACE, "%s: no placement fits", texts[plan]);
    *ret_evaluation = best.evaluation;
    return EMBTIER_OK;
}
