/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/apply/apply.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/spec/array_shape.h"
#include "base/spec/table_spec.h"

static bool is_same(struct apply_place a, struct apply_place b)
{
    return a.home == b.home && a.tier == b.tier;
}

static const struct apply_place in_cache = { EMBTIER_HOME_CACHE, APPLY_NO_TIER };

/* Array memory that a table takes at a place; UINT64_MAX: more than any tier has. */
static uint64_t array_bytes(const struct apply_held *table, struct apply_place place)
{
    uint64_t bytes;

    if (place.home != EMBTIER_HOME_ARRAY)
        return 0;
    bytes = array_shape_of(table->rows, table->row_bytes).bytes;
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

static enum embtier_err differs(const struct plan_table *table, const char *key, const char *wanted,
                                const char *found, struct err_msg *msg)
{
    return err_set(msg, EMBTIER_MISMATCH,
                   "table '%s' has %s %s in the plan, and %s on the server: the plan is of another "
                   "table; make a new one",
                   table->name, key, wanted, found);
}

static enum embtier_err check_same(const struct plan_table *table, const struct apply_held *held,
                                   struct err_msg *msg)
{
    char wanted[24], found[24];

    if (table->rows != held->rows) {
        snprintf(wanted, sizeof(wanted), "%" PRIu64, table->rows);
        snprintf(found, sizeof(found), "%" PRIu64, held->rows);
        return differs(table, "rows", table->rows == EMBTIER_UNBOUNDED ? "unbounded" : wanted,
                       held->rows == EMBTIER_UNBOUNDED ? "unbounded" : found, msg);
    }
    if (table->dim != held->dim) {
        snprintf(wanted, sizeof(wanted), "%" PRIu32, table->dim);
        snprintf(found, sizeof(found), "%" PRIu32, held->dim);
        return differs(table, "dim", wanted, found, msg);
    }
    if (table->dtype != held->dtype)
        return differs(table, "dtype", dtype_word(table->dtype), dtype_word(held->dtype), msg);
    if (table->optimizer != held->optimizer)
        return differs(table, "optimizer", optimizer_word(table->optimizer),
                       optimizer_word(held->optimizer), msg);
    return EMBTIER_OK;
}

/* ---- The places that the plan wants ---- */

static enum embtier_err find_tier(const struct apply_server *server, const struct plan_table *table,
                                  uint32_t *ret_tier, struct err_msg *msg)
{
    const char *const name = table->parts[0].tier;
    char names[TIERS_MAX * (TIER_NAME_MAX + 3)] = "";
    size_t used = 0;

    for (uint32_t t = 0; t < server->tier_count; t++) {
        if (strcmp(server->tiers[t].name, name) == 0) {
            *ret_tier = t;
            return EMBTIER_OK;
        }
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", t > 0 ? ", " : "",
                                 server->tiers[t].name);
    }
    return err_set(msg, EMBTIER_INVALID,
                   "table '%s' is to be in tier '%s', which the server does not have; it has %s",
                   table->name, name, names);
}

static enum embtier_err wanted_place(const struct apply_server *server,
                                     const struct plan_table *table, const struct apply_opts *opts,
                                     struct apply_place *ret_place, struct err_msg *msg)
{
    *ret_place = in_cache;
    if (table->part_count > 1)
        return err_set(msg, EMBTIER_UNSUPPORTED,
                       "table '%s' is split into %" PRIu32
                       " parts, and this version moves whole tables only: make a plan without "
                       "--row-wise, or with the table in `unsplit` of its rules",
                       table->name, table->part_count);
    switch (table->parts[0].home) {
    case PLAN_ARRAY:
        ret_place->home = EMBTIER_HOME_ARRAY;
        return find_tier(server, table, &ret_place->tier, msg);
    case PLAN_HBM:
        if (opts->without_gpu)
            return EMBTIER_OK; /* place_gpu_tables() */
        return err_set(msg, EMBTIER_UNSUPPORTED,
                       "table '%s' is to be in the memory of GPU %" PRIu32
                       ", and the server has no tables there: add --without-gpu, which takes an "
                       "array or the cache instead",
                       table->name, table->parts[0].gpu);
    case PLAN_CACHE:
    default:
        return EMBTIER_OK;
    }
}

/* ---- The moves ---- */

static struct apply_move move_of(const struct apply_held *held, struct apply_place to)
{
    return (struct apply_move){
        .table = held,
        .from = held->place,
        .to = to,
        .row_bytes = held->rows * held->row_bytes,
        .from_bytes = array_bytes(held, held->place),
        .to_bytes = array_bytes(held, to),
    };
}

/* Array bytes of a tier once all moves are done. */
static uint64_t wanted_bytes(const struct apply *apply, uint32_t tier)
{
    const struct apply_tier *const t = &apply->server->tiers[tier];
    uint64_t bytes = t->array_bytes - t->free_bytes;

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

/* Gives a table that the plan wants in GPU memory an array of the first tier with room. */
static struct apply_place place_without_gpu(const struct apply *apply,
                                            const struct apply_held *held)
{
    for (uint32_t t = 0; held->rows != EMBTIER_UNBOUNDED && t < apply->server->tier_count; t++) {
        const struct apply_place place = { EMBTIER_HOME_ARRAY, t };
        const uint64_t bytes = array_bytes(held, place);
        const uint64_t wanted = wanted_bytes(apply, t);

        if (is_same(held->place, place))
            return place;
        if (wanted <= apply->server->tiers[t].array_bytes &&
            bytes <= apply->server->tiers[t].array_bytes - wanted)
            return place;
    }
    return in_cache;
}

static void add_move(struct apply *apply, const struct apply_held *held, struct apply_place to)
{
    if (is_same(held->place, to)) {
        apply->same_count++;
        return;
    }
    apply->moves[apply->move_count] = move_of(held, to);
    apply->row_bytes += apply->moves[apply->move_count].row_bytes;
    apply->move_count++;
}

static enum embtier_err add_tables(struct apply *apply, const struct plan *plan, bool in_gpu,
                                   const struct apply_opts *opts, struct err_msg *msg)
{
    for (uint32_t i = 0; i < plan->table_count; i++) {
        const struct plan_table *const table = &plan->tables[i];
        const struct apply_held *const held = find_held(apply->server, table->name);
        const bool is_in_gpu = table->parts[0].home == PLAN_HBM;
        struct apply_place place;

        if (is_in_gpu != in_gpu)
            continue;
        if (!held)
            return err_set(msg, EMBTIER_NO_TABLE, "the server has no table '%s'", table->name);
        TRY(check_same(table, held, msg));
        TRY(wanted_place(apply->server, table, opts, &place, msg));
        if (is_in_gpu) {
            place = place_without_gpu(apply, held);
            apply->gpu_count++;
        }
        add_move(apply, held, place);
    }
    return EMBTIER_OK;
}

static enum embtier_err check_room(const struct apply *apply, struct err_msg *msg)
{
    for (uint32_t t = 0; t < apply->server->tier_count; t++) {
        const struct apply_tier *const tier = &apply->server->tiers[t];
        const uint64_t bytes = wanted_bytes(apply, t);

        if (bytes > tier->array_bytes)
            return err_set(msg, EMBTIER_TOO_LARGE,
                           "tier '%s' keeps %" PRIu64
                           " bytes for arrays, and they would take %" PRIu64 ", %" PRIu64
                           " more: raise cache.tiers[%" PRIu32
                           "].array_bytes and restart the server, or make a plan for less",
                           tier->name, tier->array_bytes, bytes, bytes - tier->array_bytes, t);
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
    TRY(add_tables(apply, plan, false, opts, msg));
    TRY(check_room(apply, msg));
    TRY(add_tables(apply, plan, true, opts, msg));
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

static bool fits(const struct apply *apply, const struct apply_move *move)
{
    return move->to.home != EMBTIER_HOME_ARRAY ||
           move->to_bytes <= apply->server->tiers[move->to.tier].free_bytes;
}

/* Moves that give memory back come first, then those that fit. If none does, the largest array that
 * is to move goes to the cache, and from there to its place later. */
bool apply_next(const struct apply *apply, struct apply_step *ret_step)
{
    struct apply_move *largest = NULL;

    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < apply->move_count; i++) {
            struct apply_move *const move = &apply->moves[i];

            if (move->is_done || (pass == 0 && move->to.home == EMBTIER_HOME_ARRAY))
                continue;
            if (fits(apply, move)) {
                *ret_step = (struct apply_step){ move, move->to };
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
    if (move->from.home == EMBTIER_HOME_ARRAY)
        apply->server->tiers[move->from.tier].free_bytes += move->from_bytes;
    if (step->to.home == EMBTIER_HOME_ARRAY) {
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

    assert(step->to.home == EMBTIER_HOME_ARRAY && step->move->to_bytes > 0);
    *free_bytes = MIN(*free_bytes, step->move->to_bytes - 1);
}

uint32_t apply_left(const struct apply *apply)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < apply->move_count; i++)
        left += !apply->moves[i].is_done;
    return left;
}
