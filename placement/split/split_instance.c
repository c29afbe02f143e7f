/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/split/split_instance.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/bytes.h"
#include "base/text/text_escape.h"
#include "placement/model/items.h"

void split_instance_free(struct split_instance *x)
{
    if (!x)
        return;
    free(x->items);
    free(x->tables);
    free(x->item_starts);
    free(x->modes);
    free(x->levels);
    free(x->curves);
    free(x->points);
    free(x);
}

/* ---- items ---- */

static void list_items(struct split_instance *x)
{
    for (uint32_t i = 0; i < x->table_count; i++)
        x->item_starts[x->items[i] + 1]++;
    for (uint32_t i = 0; i < x->item_count; i++)
        x->item_starts[i + 1] += x->item_starts[i];
    for (uint32_t i = x->table_count; i-- > 0;)
        x->tables[--x->item_starts[x->items[i] + 1]] = i;
    /* Each start has moved from the next item's to its own. */
    memmove(x->item_starts, x->item_starts + 1, x->item_count * sizeof(*x->item_starts));
    x->item_starts[x->item_count] = x->table_count;
}

/* ---- rooms ---- */

const struct model_memory *split_room_level(const struct split_instance *x, uint32_t room)
{
    uint32_t level = 0;

    while (level == x->private_level ? room >= x->gpu_count : split_room(x, level, 0) != room)
        level++;
    return &x->model->levels[level];
}

void split_room_name(const struct split_instance *x, uint32_t room, char *ret_name,
                     size_t name_bytes)
{
    const struct model_memory *const level = split_room_level(x, room);

    if (level->shared)
        snprintf(ret_name, name_bytes, "level '%s'", TEXT_SHOWN(level->name));
    else
        snprintf(ret_name, name_bytes, "level '%s' of GPU %" PRIu32, TEXT_SHOWN(level->name), room);
}

static enum embtier_err reserve(struct split_instance *x, uint32_t rule, uint32_t room,
                                struct err_msg *msg)
{
    const uint64_t bytes = x->model->rules[rule].bytes;
    char name[512] = "";

    if (bytes > x->room_bytes[room]) {
        split_room_name(x, room, name, sizeof(name));
        return err_set(msg, EMBTIER_INVALID, "%s: reserves %s of %s, where %s are left",
                       MODEL_RULE_NAME(x->model->rules, rule), BYTES_TEXT(bytes), name,
                       BYTES_TEXT(x->room_bytes[room]));
    }
    x->room_bytes[room] -= bytes;
    return EMBTIER_OK;
}

static enum embtier_err reserve_all(struct split_instance *x, struct err_msg *msg)
{
    for (uint32_t i = 0; i < x->model->rule_count; i++) {
        const struct model_rule *const rule = &x->model->rules[i];

        for (uint32_t g = 0; rule->kind == MODEL_RESERVE && g < x->gpu_count; g++)
            if (rule->memory == x->private_level ? rule->gpu == MODEL_ANY || rule->gpu == g
                                                 : g == 0)
                TRY(reserve(x, i, split_room(x, rule->memory, g), msg));
    }
    return EMBTIER_OK;
}

static void find_rooms(struct split_instance *x)
{
    x->private_level = x->level_count;
    for (uint32_t m = 0; m < x->level_count; m++) {
        x->bandwidths[m] = split_bandwidth(x->model, m);
        if (!x->model->levels[m].shared)
            x->private_level = m;
    }
    x->room_count =
        x->private_level < x->level_count ? x->gpu_count + x->level_count - 1 : x->level_count;
    for (uint32_t m = 0; m < x->level_count; m++)
        for (uint32_t g = 0; g < x->gpu_count; g++)
            x->room_bytes[split_room(x, m, g)] = x->model->levels[m].capacity_bytes;
}

/* ---- levels and modes ---- */

static uint8_t levels_on(const struct split_instance *x, const struct model_rule *rule,
                         uint32_t gpu, uint8_t levels)
{
    const bool on_gpu = rule->gpu == MODEL_ANY || rule->gpu == gpu;
    const uint8_t named =
        rule->memory == MODEL_ANY ? (2U << x->level_count) - 1 : 1U << rule->memory;

    if (rule->kind == MODEL_PIN)
        return on_gpu ? levels & named : 0;
    return on_gpu ? levels & ~named : levels;
}

static void apply_rules(struct split_instance *x)
{
    memset(x->levels, (2 << x->level_count) - 1, (uint64_t)x->table_count * x->gpu_count);
    for (uint32_t i = 0; i < x->model->rule_count; i++) {
        const struct model_rule *const rule = &x->model->rules[i];

        if (rule->kind != MODEL_PIN && rule->kind != MODEL_FORBID)
            continue;
        for (uint32_t g = 0; g < x->gpu_count; g++) {
            uint8_t *const levels = &x->levels[(uint64_t)rule->table * x->gpu_count + g];

            *levels = levels_on(x, rule, g, *levels);
        }
    }
}

/* A table that has one level only is whole there, and one without an end always needs the rest. */
static uint8_t modes_in(const struct split_instance *x, uint32_t table, uint32_t gpu)
{
    const struct split_table *const t = &x->model->tables[table];
    const uint8_t levels = x->levels[(uint64_t)table * x->gpu_count + gpu];
    const bool bounded = t->rows != EMBTIER_UNBOUNDED;
    const bool has_rest = levels >> x->level_count & 1;
    uint8_t modes = has_rest ? 1U << x->level_count : 0;

    for (uint32_t m = 0; m < x->level_count; m++)
        if ((levels >> m & 1) && bounded &&
            t->rows * t->row_bytes <= x->room_bytes[split_room(x, m, gpu)])
            modes |= 1U << m;
    if (!t->unsplit && (levels & (levels - 1)) && (bounded || has_rest))
        modes |= 1U << SPLIT_MIXED;
    return modes;
}

bool split_item_allows(const struct split_instance *x, uint32_t item, uint32_t gpu)
{
    for (uint32_t i = x->item_starts[item]; i < x->item_starts[item + 1]; i++)
        if (x->modes[(uint64_t)x->tables[i] * x->gpu_count + gpu] == 0)
            return false;
    return true;
}

/* Returns the name of the last rule about the table; "its size": there is none. */
static const char *last_rule(const struct split_instance *x, uint32_t table,
                             struct model_rule_text *buffer)
{
    for (uint32_t i = x->model->rule_count; i-- > 0;) {
        const struct model_rule *const rule = &x->model->rules[i];

        if (rule->kind != MODEL_RESERVE &&
            (rule->table == table || (rule->kind == MODEL_TOGETHER && rule->other == table)))
            return model_rule_name(x->model->rules, i, buffer);
    }
    return "its size";
}

/* Says why a table has no place: the largest room that rules leave it lacks bytes, or there is
 * none. */
static enum embtier_err refuse_table(const struct split_instance *x, uint32_t table,
                                     struct err_msg *msg)
{
    const struct split_table *const t = &x->model->tables[table];
    const uint64_t bytes = t->rows * t->row_bytes;
    uint32_t best = UINT32_MAX;
    struct model_rule_text rule;
    char name[512] = "";

    for (uint32_t m = 0; m < x->level_count; m++)
        for (uint32_t g = 0; g < x->gpu_count; g++) {
            const uint32_t room = split_room(x, m, g);

            if ((x->levels[(uint64_t)table * x->gpu_count + g] >> m & 1) &&
                (best == UINT32_MAX || x->room_bytes[room] > x->room_bytes[best]))
                best = room;
        }
    if (best == UINT32_MAX)
        return err_set(msg, EMBTIER_INVALID,
                       "table '%s': its rules leave it no place; the last one is %s",
                       TEXT_SHOWN(t->name), last_rule(x, table, &rule));
    if (t->rows == EMBTIER_UNBOUNDED)
        return err_set(
            msg, EMBTIER_INVALID,
            "table '%s': it is unbounded, but its rules keep it out of the rest; the last "
            "one is %s",
            TEXT_SHOWN(t->name), last_rule(x, table, &rule));
    split_room_name(x, best, name, sizeof(name));
    model_begin_message(split_room_level(x, best), msg);
    err_append(msg,
               "table '%s': takes %s, but the largest room that its rules leave it is %s with %s, "
               "%s too few",
               TEXT_SHOWN(t->name), BYTES_TEXT(bytes), name, BYTES_TEXT(x->room_bytes[best]),
               BYTES_TEXT(bytes - x->room_bytes[best]));
    return EMBTIER_INVALID;
}

static enum embtier_err check_item(const struct split_instance *x, uint32_t item,
                                   struct err_msg *msg)
{
    const uint32_t first = x->item_starts[item];

    for (uint32_t i = first; i < x->item_starts[item + 1]; i++) {
        const uint8_t *const modes = x->modes + (uint64_t)x->tables[i] * x->gpu_count;
        bool any = false;

        for (uint32_t g = 0; g < x->gpu_count; g++)
            any |= modes[g] != 0;
        if (!any)
            return refuse_table(x, x->tables[i], msg);
    }
    for (uint32_t g = 0; g < x->gpu_count; g++)
        if (split_item_allows(x, item, g))
            return EMBTIER_OK;
    return err_set(msg, EMBTIER_INVALID,
                   "table '%s': no GPU is allowed for it and all tables that it is kept together "
                   "with; its last rule is %s",
                   TEXT_SHOWN(x->model->tables[x->tables[first]].name),
                   last_rule(x, x->tables[first], &(struct model_rule_text){ { 0 } }));
}

/* ---- all ---- */

static bool allocate(struct split_instance *x)
{
    const uint64_t tables = x->table_count;

    x->items = calloc(tables, sizeof(*x->items));
    x->tables = calloc(tables, sizeof(*x->tables));
    x->item_starts = calloc(tables + 2, sizeof(*x->item_starts));
    x->modes = calloc(tables * x->gpu_count, 1);
    x->levels = calloc(tables * x->gpu_count, 1);
    x->curves = calloc(tables, sizeof(*x->curves));
    x->points = calloc(tables * SPLIT_POINTS_MAX, sizeof(*x->points));
    return x->items && x->tables && x->item_starts && x->modes && x->levels && x->curves &&
           x->points;
}

static void make_curves(struct split_instance *x)
{
    const double last_bandwidth =
        x->level_count > 0 ? x->bandwidths[x->level_count - 1] : (double)INFINITY;

    for (uint32_t i = 0; i < x->table_count; i++)
        split_curve_make(&x->model->tables[i], last_bandwidth,
                         x->points + (uint64_t)i * SPLIT_POINTS_MAX, &x->curves[i]);
}

enum embtier_err split_instance_new(const struct split_model *model,
                                    struct split_instance **ret_instance, struct err_msg *msg)
{
    _cleanup_(split_instance_freep) struct split_instance *x = calloc(1, sizeof(*x));

    if (!x)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    x->model = model;
    x->gpu_count = model->gpu_count;
    x->level_count = model->level_count;
    x->table_count = model->table_count;
    if (!allocate(x))
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    find_rooms(x);
    TRY(reserve_all(x, msg));
    x->item_count = model_items(model->rules, model->rule_count, x->table_count, x->items);
    list_items(x);
    apply_rules(x);
    for (uint32_t i = 0; i < x->table_count; i++)
        for (uint32_t g = 0; g < x->gpu_count; g++)
            x->modes[(uint64_t)i * x->gpu_count + g] = modes_in(x, i, g);
    for (uint32_t i = 0; i < x->item_count; i++)
        TRY(check_item(x, i, msg));
    make_curves(x);
    *ret_instance = TAKE(x);
    return EMBTIER_OK;
}

/* ---- uses ---- */

struct split_prices split_prices_of(const struct split_instance *x, uint32_t table, uint32_t gpu,
                                    double weight, const double *byte_prices)
{
    struct split_prices prices = { .level_count = x->level_count,
                                   .allowed = x->levels[(uint64_t)table * x->gpu_count + gpu],
                                   .second = weight };

    for (uint32_t m = 0; m < x->level_count; m++) {
        prices.byte[m] = byte_prices[m];
        prices.read[m] = weight / x->bandwidths[m];
    }
    return prices;
}

void split_use_count(const struct split_instance *x, uint32_t table, struct split_use *use)
{
    const struct split_curve *const c = &x->curves[table];
    struct split_point before = c->points[0];

    use->time_s = c->rest_s;
    if (use->mode < x->level_count)
        use->time_s = c->read_bytes / x->bandwidths[use->mode];
    for (uint32_t m = 0; m < x->level_count; m++) {
        if (use->mode != SPLIT_MIXED) {
            use->rows[m] = use->mode <= m ? (double)x->model->tables[table].rows : 0;
            use->bytes[m] = use->mode == m ? c->whole_bytes : 0;
        } else if (use->rows[m] > before.rows) {
            const struct split_point end = split_curve_at(c, use->rows[m]);

            use->bytes[m] = (end.rows - before.rows) * c->row_bytes;
            use->time_s += (end.read_bytes - before.read_bytes) / x->bandwidths[m] -
                           (end.rest_s - before.rest_s);
            before = end;
        } else {
            use->bytes[m] = 0;
        }
    }
}

struct split_use split_use_of(const struct split_instance *x, uint32_t table, uint32_t mode,
                              const struct split_prices *prices)
{
    const struct split_curve *const c = &x->curves[table];
    struct split_use use = { .mode = mode };
    uint32_t ends[SPLIT_LEVELS_MAX];

    if (mode == SPLIT_MIXED) {
        split_curve_cut(c, prices, ends);
        for (uint32_t m = 0; m < x->level_count; m++)
            use.rows[m] = c->points[ends[m]].rows;
    }
    split_use_count(x, table, &use);
    use.cost = prices->second * use.time_s;
    for (uint32_t m = 0; m < x->level_count; m++)
        use.cost += prices->byte[m] * use.bytes[m];
    return use;
}

struct split_use split_best_use(const struct split_instance *x, uint32_t table, uint32_t gpu,
                                const struct split_prices *prices)
{
    struct split_use best = { .cost = INFINITY };

    for (uint32_t mode = 0; mode <= SPLIT_MIXED; mode++) {
        if (split_allows(x, table, gpu, mode)) {
            const struct split_use use = split_use_of(x, table, mode, prices);

            if (use.cost < best.cost)
                best = use;
        }
    }
    return best;
}
