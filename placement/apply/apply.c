/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/apply/apply.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/spec/array_shape.h"
#include "base/spec/table_spec.h"
#include "base/text/bytes.h"

/* Bytes of a message for what stands beside a table's name, and for the number of the others. */
#define NAMED_ROOM 64
/* Bytes for the word of an optimizer, and for a message about one without names and list. */
#define OPTIMIZER_ROOM         32
#define OPTIMIZER_MESSAGE_ROOM 160

static bool is_same(struct apply_place a, struct apply_place b)
{
    return a.home == b.home && a.tier == b.tier && a.hot_rows == b.hot_rows;
}

static const struct apply_place in_cache = { EMBTIER_HOME_CACHE, APPLY_NO_TIER, 0 };

static bool has_tier(struct apply_place place)
{
    return place.tier != APPLY_NO_TIER;
}

/* Array memory that a table takes at a place; UINT64_MAX: more than any tier has. */
static uint64_t array_bytes(const struct apply_held *table, struct apply_place place)
{
    uint64_t bytes;

    if (!has_tier(place))
        return 0;
    bytes = place.home == EMBTIER_HOME_SPLIT
                ? split_shape_of(place.hot_rows, table->row_bytes).bytes
                : array_shape_of(table->rows, table->row_bytes).bytes;
    return bytes > 0 ? bytes : UINT64_MAX;
}

/* ---- The plan's tables on the server ---- */

static int compare_held(const void *a, const void *b)
{
    return strcmp(((const struct apply_held *)a)->name, ((const struct apply_held *)b)->name);
}

static struct apply_held *find_held(const struct apply_server *server, const char *name)
{
    struct apply_held wanted;

    snprintf(wanted.name, sizeof(wanted.name), "%s", name);
    return server->table_count == 0 ? NULL
                                    : bsearch(&wanted, server->tables, server->table_count,
                                              sizeof(wanted), compare_held);
}

static enum embtier_err differs(const struct plan *plan, const struct plan_table *table,
                                const char *key, const char *wanted, const char *found,
                                struct err_msg *msg)
{
    return err_set(
        msg, EMBTIER_MISMATCH,
        "%stable '%s' has %s %s in the plan, and %s on the server: the plan is of another "
        "table; make a new one",
        PLAN_PLACE(plan, table, "%s", key), table->name, key, wanted, found);
}

struct optimizers_text {
    char text[300];
};

static enum embtier_optimizer optimizer_of(const struct plan *plan,
                                           const struct apply_server *server, uint32_t table)
{
    const struct apply_held *const held = find_held(server, plan->tables[table].name);

    return held ? held->optimizer : plan->tables[table].optimizer;
}

/* Writes the list for `plan make --optimizer` that fits the server: the first table's optimizer,
 * then the tables with others, "adam,t3=sgd". Returns "..." if it takes more than @room bytes. */
static const char *optimizers_text(const struct plan *plan, const struct apply_server *server,
                                   size_t room, struct optimizers_text *buffer)
{
    const enum embtier_optimizer first = optimizer_of(plan, server, 0);
    size_t used = (size_t)snprintf(buffer->text, sizeof(buffer->text), "%s", optimizer_word(first));

    for (uint32_t i = 1; i < plan->table_count; i++) {
        const enum embtier_optimizer other = optimizer_of(plan, server, i);

        if (other == first)
            continue;
        if (used + strlen(plan->tables[i].name) + OPTIMIZER_ROOM > MIN(room, sizeof(buffer->text)))
            return "...";
        used += (size_t)snprintf(buffer->text + used, sizeof(buffer->text) - used, ",%s=%s",
                                 plan->tables[i].name, optimizer_word(other));
    }
    return buffer->text;
}

static enum embtier_err optimizer_differs(const struct plan *plan,
                                          const struct apply_server *server,
                                          const struct plan_table *table,
                                          const struct apply_held *held, struct err_msg *msg)
{
    const char *const place = PLAN_PLACE(plan, table, "optimizer");
    const size_t taken = strlen(place) + strlen(table->name) + OPTIMIZER_MESSAGE_ROOM;
    const size_t room = sizeof(msg->text) - MIN(taken, sizeof(msg->text));

    return err_set(
        msg, EMBTIER_MISMATCH,
        "%stable '%s' has optimizer %s in the plan, and %s on the server: make a new one, "
        "with `embtier plan make --optimizer %s`",
        place, table->name, optimizer_word(table->optimizer), optimizer_word(held->optimizer),
        optimizers_text(plan, server, room, &(struct optimizers_text){ { 0 } }));
}

static enum embtier_err check_same(const struct plan *plan, const struct apply_server *server,
                                   const struct plan_table *table, const struct apply_held *held,
                                   struct err_msg *msg)
{
    char wanted[24], found[24];

    if (table->rows != held->rows) {
        snprintf(wanted, sizeof(wanted), "%" PRIu64, table->rows);
        snprintf(found, sizeof(found), "%" PRIu64, held->rows);
        return differs(plan, table, "rows", table->rows == EMBTIER_UNBOUNDED ? "unbounded" : wanted,
                       held->rows == EMBTIER_UNBOUNDED ? "unbounded" : found, msg);
    }
    if (table->dim != held->dim) {
        snprintf(wanted, sizeof(wanted), "%" PRIu32, table->dim);
        snprintf(found, sizeof(found), "%" PRIu32, held->dim);
        return differs(plan, table, "dim", wanted, found, msg);
    }
    if (table->dtype != held->dtype)
        return differs(plan, table, "dtype", dtype_word(table->dtype), dtype_word(held->dtype),
                       msg);
    if (table->optimizer != held->optimizer)
        return optimizer_differs(plan, server, table, held, msg);
    return EMBTIER_OK;
}

/* No server has tables in GPU memory yet. */
static enum embtier_err check_gpus(const struct plan *plan, struct err_msg *msg)
{
    for (uint32_t i = 0; i < plan->table_count; i++) {
        const struct plan_table *const table = &plan->tables[i];

        if (table->parts[0].home == PLAN_HBM)
            return err_set(msg, EMBTIER_UNSUPPORTED,
                           "%stable '%s' is to be in the memory of GPU %" PRIu32
                           ", and the server has no tables there: add --without-gpu, which takes "
                           "an array or the cache instead",
                           PLAN_PLACE(plan, table, "parts[0].home"), table->name,
                           table->parts[0].gpu);
    }
    if (plan->gpu_count == 0)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_UNSUPPORTED,
                   "%sthe plan is for %" PRIu32 " GPU%s, and the server has none: add "
                   "--without-gpu, or make a plan for a machine without `gpus`",
                   PLAN_PLACE(plan, NULL, "gpu_count"), plan->gpu_count, PLURAL(plan->gpu_count));
}

/* ---- The places that the plan wants ---- */

static enum embtier_err find_tier(const struct plan *plan, const struct apply_server *server,
                                  const struct plan_table *table, const struct plan_part *part,
                                  uint32_t *ret_tier, struct err_msg *msg)
{
    char names[TIERS_MAX * (TIER_NAME_MAX + 3)] = "";
    size_t used = 0;

    for (uint32_t t = 0; t < server->tier_count; t++) {
        if (strcmp(server->tiers[t].name, part->tier) == 0) {
            *ret_tier = t;
            return EMBTIER_OK;
        }
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", t > 0 ? ", " : "",
                                 server->tiers[t].name);
    }
    return err_set(msg, EMBTIER_INVALID,
                   "%stable '%s' is to be in tier '%s', which the server does not have; it has %s",
                   PLAN_PLACE(plan, table, "parts[%d].tier", (int)(part - table->parts)),
                   table->name, part->tier, names);
}

/* Returns the rows of a table that the plan does not leave to the cache; 0: all. */
static uint64_t rows_in_arrays(const struct plan_table *table)
{
    uint64_t rows = 0;

    if (table->parts[table->part_count - 1].home != PLAN_CACHE)
        return 0;
    for (uint32_t p = 0; p + 1 < table->part_count; p++)
        rows += table->parts[p].rows;
    return rows;
}

/* The ranges of a table that are in arrays of tiers: a server takes one of them, as the hot rows of
 * a split, if the cache has the rest. */
static enum embtier_err find_range(const struct plan *plan, const struct plan_table *table,
                                   const struct plan_part **ret_range, struct err_msg *msg)
{
    const bool has_rest = table->parts[table->part_count - 1].home == PLAN_CACHE;
    uint32_t count = 0;

    *ret_range = NULL;
    for (uint32_t p = 0; p < table->part_count; p++)
        if (table->parts[p].home == PLAN_ARRAY) {
            *ret_range = &table->parts[p];
            count++;
        }
    if (count <= (has_rest ? 1 : 0))
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_UNSUPPORTED,
                   "%stable '%s' has %" PRIu32
                   " ranges in arrays%s, but a server has hot rows in one "
                   "tier, and the rest in the cache: make a plan for one tier of arrays, or with "
                   "the table in `unsplit` of its rules",
                   PLAN_PLACE(plan, table, "parts"), table->name, count,
                   has_rest ? "" : " and none in the cache");
}

static enum embtier_err wanted_split(const struct plan *plan, const struct apply_server *server,
                                     const struct plan_table *table, struct apply_place *ret_place,
                                     struct err_msg *msg)
{
    const struct plan_part *range;

    if (table->parts[0].home == PLAN_HBM && rows_in_arrays(table) == 0)
        return EMBTIER_OK; /* none in the cache: a whole array, of place_without_gpu() */
    TRY(find_range(plan, table, &range, msg));
    if (!range)
        return EMBTIER_OK;
    ret_place->home = EMBTIER_HOME_SPLIT;
    ret_place->hot_rows = range->rows;
    return find_tier(plan, server, table, range, &ret_place->tier, msg);
}

static enum embtier_err wanted_place(const struct plan *plan, const struct apply_server *server,
                                     const struct plan_table *table, struct apply_place *ret_place,
                                     struct err_msg *msg)
{
    *ret_place = in_cache;
    if (table->part_count > 1)
        return wanted_split(plan, server, table, ret_place, msg);
    if (table->parts[0].home != PLAN_ARRAY) /* in GPU memory: place_without_gpu() */
        return EMBTIER_OK;
    ret_place->home = EMBTIER_HOME_ARRAY;
    return find_tier(plan, server, table, &table->parts[0], &ret_place->tier, msg);
}

/* ---- The moves ---- */

/* Between the cache and a split only hot rows move. */
static uint64_t rows_moving(const struct apply_held *held, struct apply_place to)
{
    return held->place.home == EMBTIER_HOME_ARRAY || to.home == EMBTIER_HOME_ARRAY
               ? held->rows
               : held->place.hot_rows + to.hot_rows;
}

static struct apply_move move_of(const struct apply_held *held, struct apply_place to)
{
    const uint64_t rows = rows_moving(held, to);

    return (struct apply_move){
        .table = held,
        .from = held->place,
        .to = to,
        .rows = rows,
        .row_bytes = rows * held->row_bytes,
        .from_bytes = array_bytes(held, held->place),
        .to_bytes = array_bytes(held, to),
        .goes_by_cache = held->place.home == EMBTIER_HOME_SPLIT && to.home == EMBTIER_HOME_SPLIT &&
                         !is_same(held->place, to),
    };
}

/* Array bytes of a tier once all moves are done. */
static uint64_t wanted_bytes(const struct apply *apply, uint32_t tier)
{
    const struct apply_tier *const t = &apply->server->tiers[tier];
    uint64_t bytes = t->array_bytes - t->free_bytes;

    bytes -= MIN(bytes, apply->unplaced_bytes[tier]);
    for (uint32_t i = 0; i < apply->move_count; i++)
        if (apply->moves[i].from.tier == tier)
            bytes -= MIN(bytes, apply->moves[i].from_bytes);
    for (uint32_t i = 0; i < apply->move_count; i++)
        if (apply->moves[i].to.tier == tier)
            bytes = apply->moves[i].to_bytes > UINT64_MAX - bytes
                        ? UINT64_MAX
                        : bytes + apply->moves[i].to_bytes;
    return bytes;
}

/* True if the place has room beside those of the moves so far. */
static bool has_room(const struct apply *apply, const struct apply_held *held,
                     struct apply_place place)
{
    const uint64_t all = apply->server->tiers[place.tier].array_bytes;
    const uint64_t bytes = array_bytes(held, place);
    uint64_t wanted = wanted_bytes(apply, place.tier);

    if (held->place.tier == place.tier) /* its own memory is free then */
        wanted -= MIN(wanted, array_bytes(held, held->place));
    return wanted <= all && bytes <= all - wanted;
}

/* Gives rows that the plan wants in GPU memory, and those in an array beside them, an array of the
 * first tier with room. If there is none for both, @beside stays as it is. */
static struct apply_place place_without_gpu(const struct apply *apply,
                                            const struct plan_table *table,
                                            const struct apply_held *held,
                                            struct apply_place beside)
{
    const uint64_t hot_rows = rows_in_arrays(table);

    for (uint32_t t = 0; t < apply->server->tier_count; t++) {
        const struct apply_place place = { hot_rows > 0 ? EMBTIER_HOME_SPLIT : EMBTIER_HOME_ARRAY,
                                           t, hot_rows };

        if (hot_rows == 0 && held->rows == EMBTIER_UNBOUNDED)
            break;
        if (has_room(apply, held, place))
            return place;
    }
    return has_tier(beside) && has_room(apply, held, beside) ? beside : in_cache;
}

static void add_move(struct apply *apply, const struct apply_held *held, struct apply_place to)
{
    /* Only the server knows if a split has the same hot rows. */
    if (is_same(held->place, to) && to.home != EMBTIER_HOME_SPLIT) {
        apply->same_count++;
        return;
    }
    apply->moves[apply->move_count] = move_of(held, to);
    apply->row_bytes += apply->moves[apply->move_count].row_bytes;
    apply->move_count++;
}

/* No more than the tier has, whatever the server says of the table. */
static uint64_t held_bytes(const struct apply *apply, const struct apply_held *held)
{
    return MIN(array_bytes(held, held->place), apply->server->tiers[held->place.tier].array_bytes);
}

/* The array that a table for GPU memory has now is free for others before it gets a place. */
static void count_unplaced(struct apply *apply, const struct plan *plan)
{
    for (uint32_t i = 0; i < plan->table_count; i++) {
        const struct apply_held *const held = find_held(apply->server, plan->tables[i].name);

        if (plan->tables[i].parts[0].home == PLAN_HBM && held && has_tier(held->place))
            apply->unplaced_bytes[held->place.tier] += held_bytes(apply, held);
    }
}

static struct apply_place take_place_without_gpu(struct apply *apply,
                                                 const struct plan_table *table,
                                                 const struct apply_held *held,
                                                 struct apply_place beside)
{
    if (has_tier(held->place))
        apply->unplaced_bytes[held->place.tier] -= held_bytes(apply, held);
    apply->gpu_count++;
    return place_without_gpu(apply, table, held, beside);
}

static enum embtier_err add_tables(struct apply *apply, const struct plan *plan, bool in_gpu,
                                   struct err_msg *msg)
{
    for (uint32_t i = 0; i < plan->table_count; i++) {
        const struct plan_table *const table = &plan->tables[i];
        const struct apply_held *const held = find_held(apply->server, table->name);
        const bool is_in_gpu = table->parts[0].home == PLAN_HBM;
        struct apply_place place;

        if (is_in_gpu != in_gpu)
            continue;
        if (!held)
            return err_set(msg, EMBTIER_NO_TABLE, "%sthe server has no table '%s'",
                           PLAN_PLACE(plan, table, "name"), table->name);
        TRY(check_same(plan, apply->server, table, held, msg));
        TRY(wanted_place(plan, apply->server, table, &place, msg));
        if (is_in_gpu)
            place = take_place_without_gpu(apply, table, held, place);
        add_move(apply, held, place);
    }
    return EMBTIER_OK;
}

/* Returns the plan's table of this name; NULL: there is none. */
static const struct plan_table *find_planned(const struct plan *plan, const char *name)
{
    for (uint32_t i = 0; i < plan->table_count; i++)
        if (strcmp(plan->tables[i].name, name) == 0)
            return &plan->tables[i];
    return NULL;
}

static int compare_bytes(const void *a, const void *b)
{
    const struct apply_held *const x = *(const struct apply_held *const *)a;
    const struct apply_held *const y = *(const struct apply_held *const *)b;
    const uint64_t x_bytes = array_bytes(x, x->place), y_bytes = array_bytes(y, y->place);

    return x_bytes != y_bytes ? (x_bytes < y_bytes) - (x_bytes > y_bytes)
                              : strcmp(x->name, y->name);
}

/* Appends the arrays of a tier that the plan does not mention, the largest first, as far as the
 * message has room for them: they take memory, and no move frees it. */
static void append_unplanned(const struct apply *apply, const struct plan *plan, uint32_t tier,
                             struct err_msg *msg)
{
    const struct apply_server *const server = apply->server;
    _cleanup_(freep) const struct apply_held **tables =
        calloc(MAX(server->table_count, 1u), sizeof(struct apply_held *));
    uint32_t count = 0, named = 0;
    uint64_t bytes = 0;

    for (uint32_t i = 0; tables && i < server->table_count; i++)
        if (server->tables[i].place.tier == tier && !find_planned(plan, server->tables[i].name)) {
            tables[count++] = &server->tables[i];
            bytes += array_bytes(&server->tables[i], server->tables[i].place);
        }
    if (count == 0)
        return;
    qsort(tables, count, sizeof(*tables), compare_bytes);
    err_append(msg, "; arrays that the plan does not mention take %s of that:", BYTES_TEXT(bytes));
    while (named < count &&
           strlen(msg->text) + strlen(tables[named]->name) + NAMED_ROOM < sizeof(msg->text)) {
        err_append(msg, "%s '%s' (%s)", named > 0 ? "," : "", tables[named]->name,
                   BYTES_TEXT(array_bytes(tables[named], tables[named]->place)));
        named++;
    }
    if (named < count)
        err_append(msg, "%s %" PRIu32 " more", named > 0 ? " and" : "", count - named);
}

/* Returns the place of the key that tells how much the plan puts into a tier. */
static const char *tier_place(const struct plan *plan, const char *tier, struct plan_place *buffer)
{
    for (uint32_t i = 0; i < plan->memory_count; i++)
        if (strcmp(plan->memories[i].name, tier) == 0)
            return plan_place(buffer, plan, NULL, "memories[%" PRIu32 "].array_bytes", i);
    return plan_place(buffer, plan, NULL, "memories");
}

/* Returns bytes in whole MiB, rounded up: a value for a configuration that is not less. */
static uint64_t mib(uint64_t bytes)
{
    return div_round_up(bytes, (uint64_t)MIB);
}

static enum embtier_err check_room(const struct apply *apply, const struct plan *plan,
                                   struct err_msg *msg)
{
    struct plan_place place;

    for (uint32_t i = 0; i < apply->move_count; i++)
        if (apply->moves[i].to_bytes == UINT64_MAX)
            return err_set(
                msg, EMBTIER_TOO_LARGE,
                "%stable '%s' has too many rows for an array: make a plan in which the "
                "cache has it",
                PLAN_PLACE(plan, find_planned(plan, apply->moves[i].table->name), "parts"),
                apply->moves[i].table->name);
    for (uint32_t t = 0; t < apply->server->tier_count; t++) {
        const struct apply_tier *const tier = &apply->server->tiers[t];
        const uint64_t bytes = wanted_bytes(apply, t);
        const uint64_t cache = tier_cache_least_bytes(t, MAX(apply->server->lanes, 1u));

        if (bytes <= tier->array_bytes)
            continue;
        (void)err_set(msg, EMBTIER_TOO_LARGE,
                      "%stier '%s' keeps %s for arrays, and they would take %s, %s more: raise "
                      "cache.tiers[%" PRIu32 "].array_bytes to %" PRIu64
                      "MiB, with bytes of at least %" PRIu64
                      "MiB as the row cache needs %s, and restart the server, or make a plan for "
                      "less",
                      tier_place(plan, tier->name, &place), tier->name,
                      BYTES_TEXT(tier->array_bytes), BYTES_TEXT(bytes),
                      BYTES_TEXT(bytes - tier->array_bytes), t, mib(bytes), mib(bytes + cache),
                      BYTES_TEXT(cache));
        append_unplanned(apply, plan, t, msg);
        return EMBTIER_TOO_LARGE;
    }
    return EMBTIER_OK;
}

enum embtier_err apply_new(const struct plan *plan, struct apply_server *server,
                           const struct apply_opts *opts, struct apply **ret_apply,
                           struct err_msg *msg)
{
    _cleanup_(apply_freep) struct apply *apply = calloc(1, sizeof(*apply));

    if (!apply)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    apply->server = server;
    apply->moves = calloc(MAX(plan->table_count, 1u), sizeof(*apply->moves));
    if (!apply->moves)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    if (server->table_count > 0)
        qsort(server->tables, server->table_count, sizeof(*server->tables), compare_held);
    if (!opts->without_gpu)
        TRY(check_gpus(plan, msg));
    count_unplaced(apply, plan);
    TRY(add_tables(apply, plan, false, msg));
    TRY(check_room(apply, plan, msg));
    TRY(add_tables(apply, plan, true, msg));
    apply->unplanned_count = server->table_count - plan->table_count;
    *ret_apply = TAKE(apply);
    return EMBTIER_OK;
}

void apply_free(struct apply *apply)
{
    if (!apply)
        return;
    free(apply->moves);
    free(apply);
}

/* ---- The order ---- */

void apply_limit_hot_rows(struct apply *apply, struct apply_move *move, uint64_t hot_rows)
{
    struct apply_place to = move->to;

    assert(hot_rows > 0 && hot_rows <= to.hot_rows && !move->is_done);
    to.hot_rows = hot_rows;
    apply->row_bytes -= move->row_bytes;
    *move = move_of(move->table, to);
    apply->row_bytes += move->row_bytes;
}

static bool is_trial(const struct apply_move *move)
{
    return move->to.home == EMBTIER_HOME_SPLIT && is_same(move->from, move->to) &&
           !move->goes_by_cache;
}

/* Returns the step that brings a table nearer to its place. */
static struct apply_step step_of(struct apply_move *move)
{
    const bool leaves_split = move->goes_by_cache && move->from.home == EMBTIER_HOME_SPLIT;

    return (struct apply_step){ move, leaves_split ? in_cache : move->to };
}

static bool takes_memory(const struct apply_step *step)
{
    return has_tier(step->to) && !is_trial(step->move);
}

static bool fits(const struct apply *apply, const struct apply_step *step)
{
    return !takes_memory(step) ||
           step->move->to_bytes <= apply->server->tiers[step->to.tier].free_bytes;
}

/* Moves that give memory back come first, then those that fit. If none does, the largest array that
 * is to move goes to the cache, and from there to its place later. */
bool apply_next(const struct apply *apply, struct apply_step *ret_step)
{
    struct apply_move *largest = NULL;

    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < apply->move_count; i++) {
            struct apply_move *const move = &apply->moves[i];
            const struct apply_step step = step_of(move);

            if (move->is_done || (pass == 0 && takes_memory(&step)))
                continue;
            if (fits(apply, &step)) {
                *ret_step = step;
                return true;
            }
            if (move->from_bytes > (largest ? largest->from_bytes : 0))
                largest = move;
        }
    if (!largest)
        return false;
    *ret_step = (struct apply_step){ largest, in_cache };
    return true;
}

void apply_done(struct apply *apply, const struct apply_step *step)
{
    struct apply_move *const move = step->move;

    assert(!move->is_done);
    if (is_trial(move)) {
        move->is_done = move->was_there = true;
        apply->same_count++;
        return;
    }
    if (has_tier(move->from))
        apply->server->tiers[move->from.tier].free_bytes += move->from_bytes;
    if (has_tier(step->to)) {
        assert(move->to_bytes <= apply->server->tiers[step->to.tier].free_bytes);
        apply->server->tiers[step->to.tier].free_bytes -= move->to_bytes;
    }
    move->is_done = is_same(step->to, move->to);
    move->from = step->to;
    move->from_bytes = move->is_done ? move->to_bytes : 0;
}

void apply_refused(struct apply *apply, const struct apply_step *step)
{
    uint64_t *const free_bytes = &apply->server->tiers[step->to.tier].free_bytes;

    assert(takes_memory(step) && step->move->to_bytes > 0);
    *free_bytes = MIN(*free_bytes, step->move->to_bytes - 1);
}

bool apply_is_trial(const struct apply_step *step)
{
    return is_trial(step->move);
}

void apply_has_other_rows(const struct apply_step *step)
{
    assert(is_trial(step->move) && !step->move->is_done);
    step->move->goes_by_cache = true;
}

/* ---- Back, and how far it came ---- */

/* True if a detour has left the table in the cache. */
static bool is_on_the_way(const struct apply_move *move)
{
    return !move->is_done && move->table->place.home != EMBTIER_HOME_CACHE &&
           move->from.home == EMBTIER_HOME_CACHE;
}

bool apply_next_back(const struct apply *apply, struct apply_step *ret_step)
{
    uint64_t largest = 0;

    for (uint32_t i = 0; i < apply->move_count; i++) {
        struct apply_move *const move = &apply->moves[i];
        const struct apply_place old = move->table->place;
        const uint64_t bytes = array_bytes(move->table, old);

        if (!is_on_the_way(move) || move->has_no_way_back || old.home != EMBTIER_HOME_ARRAY ||
            bytes <= largest || bytes > apply->server->tiers[old.tier].free_bytes)
            continue;
        largest = bytes;
        *ret_step = (struct apply_step){ move, old };
    }
    return largest > 0;
}

void apply_back_refused(const struct apply_step *step)
{
    step->move->has_no_way_back = true;
}

void apply_back_done(struct apply *apply, const struct apply_step *step)
{
    struct apply_move *const move = step->move;
    uint64_t *const free_bytes = &apply->server->tiers[step->to.tier].free_bytes;

    assert(is_on_the_way(move) && is_same(step->to, move->table->place));
    move->from = step->to;
    move->from_bytes = array_bytes(move->table, step->to);
    assert(move->from_bytes <= *free_bytes);
    *free_bytes -= move->from_bytes;
}

uint32_t apply_on_the_way(const struct apply *apply, const char **ret_name)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < apply->move_count; i++)
        if (is_on_the_way(&apply->moves[i])) {
            *ret_name = apply->moves[i].table->name;
            count++;
        }
    return count;
}

uint32_t apply_moved(const struct apply *apply)
{
    uint32_t moved = 0;

    for (uint32_t i = 0; i < apply->move_count; i++)
        moved += apply->moves[i].is_done && !apply->moves[i].was_there;
    return moved;
}

bool apply_has_equal_split(const struct apply *apply)
{
    for (uint32_t i = 0; i < apply->move_count; i++)
        if (apply->moves[i].to.home == EMBTIER_HOME_SPLIT &&
            is_same(apply->moves[i].to, apply->moves[i].table->place))
            return true;
    return false;
}

uint32_t apply_left(const struct apply *apply)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < apply->move_count; i++)
        left += !apply->moves[i].is_done;
    return left;
}
