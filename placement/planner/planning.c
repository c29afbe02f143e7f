/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/planner/planning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/bytes.h"
#include "base/text/text_escape.h"
#include "placement/model/assignment.h"

#define DAY_S 86400.0
/* Evaluations that differ by less, as a share, are equal. */
#define CLOSE 1e-9
/* A table that is not cached counts as having this share of its rows' bytes in the cache. So its
 * hit rates are predicted as if it were cached, and it takes nothing from the others. */
#define HARDLY 1e-9

void planning_free(struct planning *planning)
{
    if (!planning)
        return;
    free(planning->tables);
    free(planning->model_rules);
    free(planning->times_s);
    free(planning->previous_places);
    free(planning->previous);
    free(planning->costs);
    free(planning->row_bytes);
    free(planning->predictions);
    free(planning);
}

/* ---- Making ---- */

static void fill_tables(struct planning *p)
{
    for (uint32_t i = 0; i < p->workload->table_count; i++) {
        const struct work_table *const table = &p->workload->tables[i];

        p->tables[i] = (struct model_table){
            .name = table->name,
            .weight_bytes = table->array_bytes > 0 ? table->array_bytes : table->stored_bytes,
            .bags_per_batch = table->lookups,
            .pooling_factor = 1,
            .lookup_bytes = table->weight_bytes,
        };
    }
}

static void fill_memories(struct planning *p)
{
    const struct machine *const machine = p->machine;
    const uint32_t first = machine_first_tier(machine);

    for (uint32_t m = 0; m < machine_memory_count(machine); m++)
        p->memories[m] = (struct model_memory){ .name = machine_memory_name(machine, m),
                                                .shared = m >= first,
                                                .capacity_bytes = MODEL_BYTES_MAX,
                                                .bandwidth_bytes_per_s = 1 };
    if (first > 0) {
        p->memories[0].capacity_bytes = machine->hbm_bytes;
        p->memories[0].bandwidth_bytes_per_s = machine->hbm_bandwidth_bytes_per_s;
        p->memories[0].place = machine->places.hbm_bytes.text;
    }
    for (uint32_t k = 0; k < machine->tier_count; k++) {
        p->memories[first + k].capacity_bytes =
            machine->tiers[k].bytes -
            MAX(p->rules->cache_least_bytes[k], machine_cache_least_bytes(machine, k));
        p->memories[first + k].bandwidth_bytes_per_s = machine->tiers[k].bandwidth_bytes_per_s;
        p->memories[first + k].place = machine->places.tier_bytes[k].text;
    }
}

/* The cache has no bandwidth of its own; its entry in the model is a number that nothing reads. */
static void fill_array_times(struct planning *p)
{
    for (uint32_t i = 0; i < p->workload->table_count; i++)
        for (uint32_t m = 0; m < machine_cache(p->machine); m++)
            p->times_s[(uint64_t)i * p->model.memory_count + m] =
                p->workload->tables[i].lookups * p->workload->tables[i].weight_bytes /
                model_gpu_bandwidth(&p->model, m);
}

static void forbid_arrays(struct planning *p)
{
    struct model_rule *const rules = p->model_rules;

    for (uint32_t i = 0; i < p->workload->table_count; i++)
        for (uint32_t m = 0; m < machine_cache(p->machine); m++)
            if (p->workload->tables[i].array_bytes == 0)
                rules[p->model.rule_count++] = (struct model_rule){
                    .kind = MODEL_FORBID,
                    .table = i,
                    .memory = m,
                    .gpu = MODEL_ANY,
                    .name = "its number of rows, unbounded or too large for an array,",
                };
}

static enum embtier_err fill_rules(struct planning *p, struct err_msg *msg)
{
    const struct rules *const rules = p->rules;
    const uint64_t most =
        rules->rule_count + (uint64_t)p->workload->table_count * p->model.memory_count;
    const uint32_t first = machine_first_tier(p->machine);

    p->model_rules = calloc(most, sizeof(*p->model_rules));
    if (!p->model_rules)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    if (rules->rule_count > 0)
        memcpy(p->model_rules, rules->rules, rules->rule_count * sizeof(*p->model_rules));
    p->model.rule_count = rules->rule_count;
    forbid_arrays(p);
    p->model.rules = p->model_rules;
    for (uint32_t k = 0; k < p->machine->tier_count; k++)
        p->tier_bytes[k] = p->machine->tiers[k].bytes;
    for (uint32_t i = 0; i < rules->rule_count; i++)
        if (rules->rules[i].kind == MODEL_RESERVE && rules->rules[i].memory >= first) {
            uint64_t *const bytes = &p->tier_bytes[rules->rules[i].memory - first];

            *bytes -= MIN(*bytes, rules->rules[i].bytes);
        }
    return EMBTIER_OK;
}

static enum embtier_err check_ssd(const struct planning *p, struct err_msg *msg)
{
    const char *const place = p->machine->places.ssd_bytes.text;
    const uint64_t room = p->machine->ssd.bytes;
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < p->workload->table_count; i++)
        bytes += p->workload->tables[i].stored_bytes;
    if (bytes > room)
        return err_set(msg, EMBTIER_INVALID,
                       "%s%sthe tables take %s of SSD, and ssd.bytes are %s: %s are missing", place,
                       place[0] != '\0' ? ": " : "", BYTES_TEXT(bytes), BYTES_TEXT(room),
                       BYTES_TEXT(bytes - room));
    return EMBTIER_OK;
}

/* ---- The previous plan ---- */

static const struct plan_table *find_previous(const struct plan *plan, const char *name)
{
    for (uint32_t i = 0; i < plan->table_count; i++)
        if (strcmp(plan->tables[i].name, name) == 0)
            return &plan->tables[i];
    return NULL;
}

/* The memory of a part; MACHINE_NO_MEMORY: this machine lacks it. */
static uint32_t memory_of(const struct planning *p, const struct plan_part *part)
{
    switch (part->home) {
    case PLAN_HBM:
        return p->machine->gpu_count > 0 ? 0 : MACHINE_NO_MEMORY;
    case PLAN_ARRAY:
        return machine_find_memory(p->machine, part->tier);
    case PLAN_CACHE:
    default:
        return machine_cache(p->machine);
    }
}

/* Rows of a table that the plan does not have, or whose home this machine lacks, are taken as
 * cached, and so are those behind them. */
static struct split_cut previous_cut(const struct planning *p, uint32_t table,
                                     const struct plan_table *previous)
{
    const uint64_t rows = p->workload->tables[table].rows;
    struct split_cut cut = { .gpu = previous && previous->gpu < p->model.gpu_count ? previous->gpu
                                                                                   : 0 };
    uint64_t left = rows == EMBTIER_UNBOUNDED ? UINT64_MAX : rows;
    uint32_t next = 0;

    for (uint32_t i = 0; previous && i < previous->part_count; i++) {
        const uint32_t memory = memory_of(p, &previous->parts[i]);

        if (memory < next || memory >= machine_cache(p->machine))
            break;
        cut.rows[memory] = MIN(previous->parts[i].rows, left);
        left -= cut.rows[memory];
        next = memory + 1;
    }
    return cut;
}

/* True: the cut is where the previous plan has the table. One that it lacks lies in the cache. */
static bool is_exact(const struct planning *p, uint32_t table, const struct plan_table *previous)
{
    const struct split_cut *const cut = &p->previous[table];

    if (!previous)
        return true;
    if (previous->rows != p->workload->tables[table].rows ||
        (previous->gpu != cut->gpu && p->machine->gpu_count > 0))
        return false;
    for (uint32_t i = 0; i < previous->part_count; i++) {
        const uint32_t memory = memory_of(p, &previous->parts[i]);

        if (memory > machine_cache(p->machine) ||
            (memory < machine_cache(p->machine) && cut->rows[memory] != previous->parts[i].rows))
            return false;
    }
    return true;
}

/* A table that was split is taken as cached. */
static uint32_t previous_place(const struct planning *p, uint32_t table)
{
    const struct split_cut *const cut = &p->previous[table];
    uint32_t memory = machine_cache(p->machine);

    for (uint32_t m = 0; m < machine_cache(p->machine); m++)
        if (cut->rows[m] > 0 && cut->rows[m] == p->workload->tables[table].rows)
            memory = m;
    return model_place(&p->model, memory, cut->gpu);
}

static enum embtier_err take_previous(struct planning *p, struct err_msg *msg)
{
    const uint32_t count = p->workload->table_count;

    if (!p->previous_plan)
        return EMBTIER_OK;
    p->previous_places = calloc(count, sizeof(*p->previous_places));
    p->previous = calloc(count, sizeof(*p->previous));
    if (!p->previous_places || !p->previous)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    p->has_exact_rows = p->has_exact_places = true;
    for (uint32_t i = 0; i < count; i++) {
        const struct plan_table *const previous =
            find_previous(p->previous_plan, p->workload->tables[i].name);

        p->previous[i] = previous_cut(p, i, previous);
        p->previous_places[i] = previous_place(p, i);
        p->has_exact_rows = p->has_exact_rows && is_exact(p, i, previous);
        p->has_exact_places = p->has_exact_places && (!previous || previous->part_count == 1);
    }
    p->has_exact_places = p->has_exact_places && p->has_exact_rows;
    return EMBTIER_OK;
}

struct split_cut planning_cut_of(const struct planning *p, uint32_t table, uint32_t place)
{
    struct split_cut cut = { .gpu = place % p->model.gpu_count };

    if (!planning_is_cached(p, place))
        cut.rows[place / p->model.gpu_count] = p->workload->tables[table].rows;
    return cut;
}

static uint64_t overlap(uint64_t begin_a, uint64_t end_a, uint64_t begin_b, uint64_t end_b)
{
    const uint64_t begin = MAX(begin_a, begin_b), end = MIN(end_a, end_b);

    return end > begin ? end - begin : 0;
}

/* Both plans sort rows by hotness, and a row stays if its rank lies in the same memory. */
uint64_t planning_moved_bytes(const struct planning *p, uint32_t table, const struct split_cut *cut)
{
    const struct work_table *const work = &p->workload->tables[table];
    const struct split_cut *const before = &p->previous[table];
    uint64_t old_rows = 0, new_rows = 0, same = 0;

    for (uint32_t m = 0; m < machine_cache(p->machine); m++) {
        if (m >= machine_first_tier(p->machine) || before->gpu == cut->gpu)
            same +=
                overlap(old_rows, old_rows + before->rows[m], new_rows, new_rows + cut->rows[m]);
        old_rows += before->rows[m];
        new_rows += cut->rows[m];
    }
    return (MAX(old_rows, new_rows) - same) * work->row_bytes;
}

static uint64_t count_moved(const struct planning *p, const uint32_t *places)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; p->previous && i < p->workload->table_count; i++) {
        const struct split_cut cut = planning_cut_of(p, i, places[i]);

        bytes += planning_moved_bytes(p, i, &cut);
    }
    return bytes;
}

static enum embtier_err allocate(struct planning *p, struct err_msg *msg)
{
    const uint32_t count = p->workload->table_count;

    p->tables = calloc(count, sizeof(*p->tables));
    p->times_s = calloc((uint64_t)count * p->model.memory_count, sizeof(*p->times_s));
    p->costs = calloc(count, sizeof(*p->costs));
    p->row_bytes = calloc(count, sizeof(*p->row_bytes));
    p->predictions = calloc(count, sizeof(*p->predictions));
    if (!p->tables || !p->times_s || !p->costs || !p->row_bytes || !p->predictions)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    return EMBTIER_OK;
}

enum embtier_err planning_new(const struct workload *workload, const struct machine *machine,
                              const struct rules *rules, const struct plan *previous,
                              struct planning **ret_planning, struct err_msg *msg)
{
    _cleanup_(planning_freep) struct planning *p = calloc(1, sizeof(*p));

    if (!p)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    p->workload = workload;
    p->machine = machine;
    p->rules = rules;
    p->previous_plan = previous;
    p->model = (struct model){ .table_count = workload->table_count,
                               .memory_count = machine_memory_count(machine),
                               .gpu_count = MAX(machine->gpu_count, 1u) };
    TRY(allocate(p, msg));
    fill_tables(p);
    fill_memories(p);
    p->model.tables = p->tables;
    p->model.memories = p->memories;
    p->model.times_s = p->times_s;
    fill_array_times(p);
    TRY(fill_rules(p, msg));
    TRY(model_check(&p->model, msg)); /* so sums of bytes do not overflow */
    TRY(check_ssd(p, msg));
    TRY(take_previous(p, msg));
    *ret_planning = TAKE(p);
    return EMBTIER_OK;
}

/* ---- What the cache costs ---- */

/* Blocks of SSD that hold a row. A row is read with all of them. */
static double row_blocks(const struct planning *p, uint32_t table)
{
    return (double)div_round_up(p->workload->tables[table].row_bytes, p->machine->ssd.block_bytes);
}

static double or_infinity(double limit)
{
    return limit > 0 ? limit : INFINITY;
}

double planning_ssd_bandwidth(const struct planning *p)
{
    const struct machine_ssd *const ssd = &p->machine->ssd;

    return p->rules->warns[LIMIT_READ_IOPS] ? ssd->read_bandwidth_bytes_per_s
                                            : MIN(ssd->read_bandwidth_bytes_per_s,
                                                  or_infinity(ssd->read_iops) * ssd->block_bytes);
}

/* The time on SSD of one lookup that misses, with all of its bandwidth. */
static double miss_s(const struct planning *p, uint32_t table)
{
    return row_blocks(p, table) * p->machine->ssd.block_bytes / planning_ssd_bandwidth(p);
}

/* A miss brings a row in, and so drives one out in the long run. That one is written if it was
 * updated since it came. So no more rows are written than miss, nor than are updated. */
static double written_bytes(const struct planning *p, uint32_t i, double misses,
                            double updated_rows)
{
    return MIN(misses, updated_rows) * p->workload->tables[i].row_bytes *
           MAX(p->machine->ssd.write_amplification, 1.0);
}

struct cache_cost planning_cache_cost(const struct planning *p, uint32_t i,
                                      const struct cached_lookups *cached,
                                      const struct table_prediction *prediction)
{
    struct cache_cost cost = { .prediction = *prediction };
    double missed = 1, lookup_s = 0;

    for (uint32_t k = 0; k < p->machine->tier_count; k++) {
        missed -= prediction->hit_rates[k];
        lookup_s += prediction->hit_rates[k] * p->workload->tables[i].weight_bytes /
                    p->machine->tiers[k].bandwidth_bytes_per_s;
    }
    missed = MAX(missed, 0.0);
    cost.time_s = cached->lookups * (lookup_s + missed * miss_s(p, i)) * p->model.gpu_count;
    cost.read_blocks = cached->lookups * missed * row_blocks(p, i);
    cost.written_bytes = written_bytes(p, i, cached->lookups * missed, cached->updated_rows);
    return cost;
}

double planning_ssd_s(const struct planning *p, const struct cache_cost *cost)
{
    const struct machine_ssd *const ssd = &p->machine->ssd;
    double sum_s = 0;

    if (ssd->read_iops > 0)
        sum_s += cost->read_blocks / ssd->read_iops;
    if (ssd->write_bandwidth_bytes_per_s > 0)
        sum_s += cost->written_bytes / ssd->write_bandwidth_bytes_per_s;
    if (ssd->drive_writes_per_day > 0)
        sum_s += cost->written_bytes * DAY_S / machine_writes_per_day(p->machine);
    return sum_s;
}

static void fill_cost(struct planning *p, uint32_t i, const struct table_prediction *prediction)
{
    const struct work_table *const table = &p->workload->tables[i];

    p->costs[i] = planning_cache_cost(
        p, i, &(struct cached_lookups){ table->lookups, table->updated_rows }, prediction);
    p->times_s[(uint64_t)i * p->model.memory_count + machine_cache(p->machine)] =
        p->costs[i].time_s;
}

static enum embtier_err predict(struct planning *p, const uint64_t *cache_bytes,
                                struct err_msg *msg)
{
    struct cache_tiers tiers = { .count = p->machine->tier_count };

    for (uint32_t k = 0; k < tiers.count; k++)
        tiers.bytes[k] = (double)cache_bytes[k];
    return measured_profile_predict(p->workload->profile, p->row_bytes, &tiers, p->predictions,
                                    msg);
}

static enum embtier_err predict_costs(struct planning *p, const uint32_t *places,
                                      const uint64_t *cache_bytes, struct err_msg *msg)
{
    for (uint32_t i = 0; i < p->workload->table_count; i++)
        p->row_bytes[i] =
            p->workload->tables[i].row_bytes * (planning_is_cached(p, places[i]) ? 1.0 : HARDLY);
    TRY(predict(p, cache_bytes, msg));
    for (uint32_t i = 0; i < p->workload->table_count; i++)
        fill_cost(p, i, &p->predictions[i]);
    return EMBTIER_OK;
}

/* The most that a lookup can save is to hit in the fastest tier that is faster than SSD. */
bool planning_has_odd_tiers(const struct planning *p, uint32_t i, double *ret_least_s)
{
    const struct work_table *const table = &p->workload->tables[i];
    double lookup_s = miss_s(p, i);
    bool sorted = true;

    for (uint32_t k = 0; k < p->machine->tier_count; k++) {
        const double hit_s = table->weight_bytes / p->machine->tiers[k].bandwidth_bytes_per_s;

        sorted = sorted && hit_s <= miss_s(p, i);
        lookup_s = MIN(lookup_s, hit_s);
    }
    *ret_least_s = lookup_s * p->model.gpu_count;
    return !sorted;
}

static double least_cost_s(const struct planning *p, uint32_t i)
{
    double lookup_s;

    return planning_has_odd_tiers(p, i, &lookup_s) ? p->workload->tables[i].lookups * lookup_s
                                                   : p->costs[i].time_s;
}

enum embtier_err planning_set_least_times(struct planning *p, struct err_msg *msg)
{
    for (uint32_t i = 0; i < p->workload->table_count; i++) {
        memset(p->row_bytes, 0, p->workload->table_count * sizeof(*p->row_bytes));
        p->row_bytes[i] = p->workload->tables[i].row_bytes;
        TRY(predict(p, p->tier_bytes, msg));
        fill_cost(p, i, &p->predictions[i]);
        p->times_s[(uint64_t)i * p->model.memory_count + machine_cache(p->machine)] =
            least_cost_s(p, i);
    }
    return EMBTIER_OK;
}

/* ---- Evaluation ---- */

static void fill_bytes(const struct planning *p, const uint32_t *places, struct evaluation *e)
{
    const uint32_t first = machine_first_tier(p->machine);

    for (uint32_t i = 0; i < p->workload->table_count; i++) {
        const uint32_t memory = places[i] / p->model.gpu_count;

        if (memory >= first && memory < machine_cache(p->machine))
            e->array_bytes[memory - first] += model_table_bytes(&p->tables[i]);
    }
    for (uint32_t k = 0; k < p->machine->tier_count; k++)
        e->cache_bytes[k] = p->tier_bytes[k] - MIN(p->tier_bytes[k], e->array_bytes[k]);
}

/* Writes to SSD set the pace if their limit is not only a warning. The time of a batch has the
 * reads. */
static void fill_pace(const struct planning *p, struct evaluation *e)
{
    const struct machine_ssd *const ssd = &p->machine->ssd;

    e->batch_s = e->time_s;
    if (!p->rules->warns[LIMIT_WRITE_BANDWIDTH])
        e->batch_s =
            MAX(e->batch_s, e->written_bytes / or_infinity(ssd->write_bandwidth_bytes_per_s));
    e->samples_per_s = e->batch_s > 0 ? p->workload->samples_per_batch / e->batch_s : 0;
}

/* Limits hold at the target, or else at the predicted pace. */
static void fill_limits(const struct planning *p, struct evaluation *e)
{
    const double target = p->rules->target_samples_per_s;
    const double samples = p->workload->samples_per_batch;
    const double batches_per_s = (target > 0 ? target : e->samples_per_s) / samples;

    e->needed[LIMIT_TARGET] = e->time_s;
    e->allowed[LIMIT_TARGET] = target > 0 ? samples / target : INFINITY;
    e->needed[LIMIT_READ_IOPS] = e->reads * batches_per_s;
    e->allowed[LIMIT_READ_IOPS] = or_infinity(p->machine->ssd.read_iops);
    e->needed[LIMIT_WRITE_BANDWIDTH] = e->written_bytes * batches_per_s;
    e->allowed[LIMIT_WRITE_BANDWIDTH] = or_infinity(p->machine->ssd.write_bandwidth_bytes_per_s);
    e->needed[LIMIT_DRIVE_WRITES] = e->written_bytes * batches_per_s * DAY_S;
    e->allowed[LIMIT_DRIVE_WRITES] = machine_writes_per_day(p->machine);
}

static void fill_excess(const struct planning *p, struct evaluation *e)
{
    const double most_moved = (double)MAX(p->rules->moved_bytes_max, UINT64_C(1));

    for (uint32_t i = 0; i < RULES_LIMITS; i++)
        if (!p->rules->warns[i] && e->needed[i] > e->allowed[i] * (1 + CLOSE))
            e->excess += e->needed[i] / e->allowed[i] - 1;
    if (e->moved_bytes > p->rules->moved_bytes_max)
        e->excess += (double)(e->moved_bytes - p->rules->moved_bytes_max) / most_moved;
}

void planning_judge(const struct planning *p, struct evaluation *e)
{
    fill_pace(p, e);
    fill_limits(p, e);
    fill_excess(p, e);
}

static enum embtier_err fill_times(const struct planning *p, const uint32_t *places,
                                   struct evaluation *e, struct err_msg *msg)
{
    double gpus_s[MODEL_GPUS_MAX];

    TRY(assignment_check(&p->model, places, &e->time_s, gpus_s, msg));
    for (uint32_t g = 0; g < p->model.gpu_count; g++)
        e->sum_s += gpus_s[g];
    for (uint32_t i = 0; i < p->workload->table_count; i++)
        if (planning_is_cached(p, places[i])) {
            e->reads += p->costs[i].read_blocks;
            e->written_bytes += p->costs[i].written_bytes;
        }
    return EMBTIER_OK;
}

enum embtier_err planning_evaluate(struct planning *p, const uint32_t *places,
                                   struct evaluation *ret_evaluation, struct err_msg *msg)
{
    struct evaluation e = { .moved_bytes = count_moved(p, places) };

    /* Most assignments that do not fit are found so before the prediction, which takes longest. */
    TRY(assignment_check(&p->model, places, &e.time_s, NULL, msg));
    fill_bytes(p, places, &e);
    TRY(predict_costs(p, places, e.cache_bytes, msg));
    TRY(fill_times(p, places, &e, msg));
    planning_judge(p, &e);
    *ret_evaluation = e;
    return EMBTIER_OK;
}

/* -1: @a is less by more than rounding. */
static int compare(double a, double b)
{
    const double close = CLOSE * MAX(fabs(a), fabs(b));

    return a < b - close ? -1 : a > b + close;
}

bool planning_is_worth(const struct planning *p, const struct evaluation *found,
                       const struct evaluation *in_force)
{
    return p->rules->least_gain == 0 || found->moved_bytes <= in_force->moved_bytes ||
           compare(found->excess, in_force->excess) < 0 ||
           found->batch_s < in_force->batch_s * (1 - p->rules->least_gain);
}

bool evaluation_is_better(const struct evaluation *a, const struct evaluation *b)
{
    int order = compare(a->excess, b->excess);

    if (order == 0)
        order = compare(a->batch_s, b->batch_s);
    if (order == 0)
        order = compare(a->sum_s, b->sum_s);
    if (order == 0 && a->moved_bytes != b->moved_bytes)
        order = a->moved_bytes < b->moved_bytes ? -1 : 1;
    return order < 0;
}
