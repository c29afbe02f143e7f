/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/solve/fit.h"

#include <stdlib.h>
#include <string.h>

#include "base/text/bytes.h"
#include "base/text/text_escape.h"

#define NONE UINT32_MAX

/* ---- one table ---- */

static bool has_place(const struct instance *x, uint32_t item)
{
    for (uint32_t p = 0; p < x->place_count; p++)
        if (instance_allows(x, item, p))
            return true;
    return false;
}

static uint64_t bytes_at(const struct instance *x, uint32_t place)
{
    return x->room_bytes[x->room_of_place[place]];
}

/* The largest place that the item's rules leave it, or NONE. */
static uint32_t largest_left(const struct instance *x, uint32_t item)
{
    uint32_t best = NONE;

    for (uint32_t p = 0; p < x->place_count; p++)
        if (x->allowed[(uint64_t)item * x->place_count + p] != INSTANCE_RULED_OUT &&
            (best == NONE || bytes_at(x, p) > bytes_at(x, best)))
            best = p;
    return best;
}

/* The rule that rules out the last place that those before it left. */
static uint32_t last_rule(const struct instance *x, uint32_t item)
{
    uint32_t last = 0;

    for (uint32_t p = 0; p < x->place_count; p++)
        last = MAX(last, instance_rule(x, item, p));
    return last;
}

/* The first rule that keeps the item from a place that is large enough for it, or MODEL_ANY. */
static uint32_t rule_in_the_way(const struct instance *x, uint32_t item)
{
    uint32_t first = MODEL_ANY;

    for (uint32_t p = 0; p < x->place_count; p++)
        if (x->bytes[item] <= bytes_at(x, p))
            first = MIN(first, instance_rule(x, item, p));
    return first;
}

static bool is_one_table(const struct instance *x, uint32_t item)
{
    for (uint32_t i = instance_table(x, item) + 1; i < x->model->table_count; i++)
        if (x->item_of_table[i] == item)
            return false;
    return true;
}

static enum embtier_err refuse_item(const struct instance *x, uint32_t item, struct err_msg *msg)
{
    const char *const name = x->model->tables[instance_table(x, item)].name;
    const uint32_t place = largest_left(x, item), rule = rule_in_the_way(x, item);
    const char *const others =
        is_one_table(x, item) ? "" : ", with the tables kept together with it";
    char room_name[96];

    if (place == NONE)
        return err_set(msg, EMBTIER_INVALID,
                       "table '%s'%s: rules leave it no place; %s rules out the last one",
                       TEXT_SHOWN(name), others,
                       MODEL_RULE_NAME(x->model->rules, last_rule(x, item)));
    model_begin_message(instance_room_memory(x, x->room_of_place[place]), msg);
    err_append(msg, "table '%s'%s: ", TEXT_SHOWN(name), others);
    instance_room_name(x, x->room_of_place[place], room_name, sizeof(room_name));
    err_append(msg, "%s; the largest place allowed, %s, has %s: %s too few",
               BYTES_TEXT(x->bytes[item]), room_name, BYTES_TEXT(bytes_at(x, place)),
               BYTES_TEXT(x->bytes[item] - bytes_at(x, place)));
    if (rule != MODEL_ANY)
        err_append(msg, "; %s rules out larger ones", MODEL_RULE_NAME(x->model->rules, rule));
    return EMBTIER_INVALID;
}

/* ---- all together ---- */

struct flow {
    const struct instance *x;
    uint64_t *parts;     /* item_count * room_count: bytes of the item in the room */
    uint64_t *free;      /* room_count */
    uint64_t *lacking;   /* item_count: bytes that found no room */
    uint8_t *may;        /* item_count * room_count */
    uint32_t *from_room; /* room_count: the room before it on the way, or NONE */
    uint32_t *by_item;   /* room_count: the item whose bytes move from there */
    uint32_t *queue;     /* room_count */
    uint32_t queued;
    uint8_t *reached; /* room_count */
    uint8_t *full;    /* room_count: found to be full for good, so no search goes there */
};

static void free_flow(struct flow *f)
{
    free(f->parts);
    free(f->free);
    free(f->lacking);
    free(f->may);
    free(f->from_room);
    free(f->by_item);
    free(f->queue);
    free(f->reached);
    free(f->full);
}

static enum embtier_err new_flow(struct flow *f, const struct instance *x)
{
    const uint64_t cells = (uint64_t)x->item_count * x->room_count;

    f->x = x;
    f->parts = calloc(cells, sizeof(*f->parts));
    f->free = calloc(x->room_count, sizeof(*f->free));
    f->lacking = calloc(x->item_count, sizeof(*f->lacking));
    f->may = calloc(cells, sizeof(*f->may));
    f->from_room = calloc(x->room_count, sizeof(*f->from_room));
    f->by_item = calloc(x->room_count, sizeof(*f->by_item));
    f->queue = calloc(x->room_count, sizeof(*f->queue));
    f->reached = calloc(x->room_count, sizeof(*f->reached));
    f->full = calloc(x->room_count, sizeof(*f->full));
    if (!f->parts || !f->free || !f->lacking || !f->may || !f->from_room || !f->by_item ||
        !f->queue || !f->reached || !f->full)
        return EMBTIER_NO_MEMORY;
    memcpy(f->free, x->room_bytes, x->room_count * sizeof(*f->free));
    for (uint32_t i = 0; i < x->item_count; i++)
        for (uint32_t p = 0; p < x->place_count; p++)
            if (instance_allows(x, i, p))
                f->may[(uint64_t)i * x->room_count + x->room_of_place[p]] = true;
    return EMBTIER_OK;
}

static bool may_use(const struct flow *f, uint32_t item, uint32_t room)
{
    return f->may[(uint64_t)item * f->x->room_count + room];
}

static uint64_t *part_of(const struct flow *f, uint32_t item, uint32_t room)
{
    return &f->parts[(uint64_t)item * f->x->room_count + room];
}

/* True: @room is new, and has free bytes. */
static bool reach(struct flow *f, uint32_t room, uint32_t from, uint32_t item)
{
    if (f->reached[room] || f->full[room] || !may_use(f, item, room))
        return false;
    f->reached[room] = true;
    f->from_room[room] = from;
    f->by_item[room] = item;
    f->queue[f->queued++] = room;
    return f->free[room] > 0;
}

/* Reaches the rooms to which items with bytes in @from could move them. Returns one with free
 * bytes, or NONE. */
static uint32_t reach_from(struct flow *f, uint32_t from)
{
    for (uint32_t i = 0; i < f->x->item_count && f->queued < f->x->room_count; i++)
        for (uint32_t r = 0; *part_of(f, i, from) > 0 && r < f->x->room_count; r++)
            if (reach(f, r, from, i))
                return r;
    return NONE;
}

/* Returns a room with free bytes that bytes of @item could reach, moving others on; or NONE. Then
 * all rooms that it reached are full for good, as nothing in them can go elsewhere. */
static uint32_t find_room(struct flow *f, uint32_t item)
{
    uint32_t room = NONE;

    f->queued = 0;
    memset(f->reached, false, f->x->room_count);
    for (uint32_t r = 0; r < f->x->room_count; r++)
        if (reach(f, r, NONE, item))
            return r;
    for (uint32_t i = 0; i < f->queued && room == NONE; i++)
        room = reach_from(f, f->queue[i]);
    for (uint32_t i = 0; room == NONE && i < f->queued; i++)
        f->full[f->queue[i]] = true;
    return room;
}

static uint64_t send(struct flow *f, uint64_t bytes, uint32_t room)
{
    uint64_t least = MIN(bytes, f->free[room]);

    for (uint32_t r = room; f->from_room[r] != NONE; r = f->from_room[r])
        least = MIN(least, *part_of(f, f->by_item[r], f->from_room[r]));
    f->free[room] -= least;
    for (uint32_t r = room;; r = f->from_room[r]) {
        *part_of(f, f->by_item[r], r) += least;
        if (f->from_room[r] == NONE)
            return least;
        *part_of(f, f->by_item[r], f->from_room[r]) -= least;
    }
}

/* Returns the bytes of @item that find no room. */
static uint64_t place_bytes(struct flow *f, uint32_t item)
{
    uint64_t left = f->x->bytes[item];

    while (left > 0) {
        const uint32_t room = find_room(f, item);

        if (room == NONE)
            break;
        left -= send(f, left, room);
    }
    return left;
}

/* Sums up the bytes that items lack which may use a reached room. */
static uint64_t sum_lacking(const struct flow *f)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < f->x->item_count; i++)
        for (uint32_t r = 0; r < f->x->room_count; r++)
            if (f->reached[r] && may_use(f, i, r)) {
                bytes += f->lacking[i];
                break;
            }
    return bytes;
}

/* Begins a message about the reached rooms with the places of all their capacities. */
static void begin_message(const struct flow *f, struct err_msg *msg)
{
    const char *last = "";

    err_write(msg, "%s", "");
    for (uint32_t r = 0; r < f->x->room_count; r++)
        if (f->reached[r])
            model_add_place(instance_room_memory(f->x, r), &last, msg);
    err_append(msg, "%s", last[0] != '\0' ? ": " : "");
}

/* All rooms that the search of @item reaches are full of items that may not go elsewhere. */
static enum embtier_err refuse_all(struct flow *f, uint32_t item, struct err_msg *msg)
{
    char name[96];
    bool first = true;

    memset(f->full, false, f->x->room_count); /* so that all of them are named */
    (void)find_room(f, item);
    begin_message(f, msg);
    err_append(msg, "table '%s' and the tables that need the same memory lack %s of ",
               TEXT_SHOWN(f->x->model->tables[instance_table(f->x, item)].name),
               BYTES_TEXT(sum_lacking(f)));
    for (uint32_t r = 0; r < f->x->room_count; r++)
        if (f->reached[r]) {
            instance_room_name(f->x, r, name, sizeof(name));
            err_append(msg, "%s%s", first ? "" : ", ", name);
            first = false;
        }
    return EMBTIER_INVALID;
}

static enum embtier_err place_all(struct flow *f, struct err_msg *msg)
{
    uint32_t last = NONE;

    for (uint32_t i = 0; i < f->x->item_count; i++) {
        f->lacking[i] = place_bytes(f, i);
        if (f->lacking[i] > 0)
            last = i;
    }
    return last == NONE ? EMBTIER_OK : refuse_all(f, last, msg);
}

enum embtier_err fit_check(const struct instance *x, struct err_msg *msg)
{
    _cleanup_(free_flow) struct flow flow = { 0 };

    for (uint32_t i = 0; i < x->item_count; i++)
        if (!has_place(x, i))
            return refuse_item(x, i, msg);
    if (new_flow(&flow, x) != EMBTIER_OK)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    return place_all(&flow, msg);
}
