/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/split/split_fit.h"

#include "base/text/bytes.h"
#include "base/text/text_escape.h"

/* Tables that need room in the same place, and the largest of them. */
struct need {
    uint64_t bytes, largest_bytes;
    uint32_t table;
};

static void add(const struct split_instance *x, uint32_t table, struct need *need)
{
    const struct split_table *const t = &x->model->tables[table];
    const uint64_t bytes = t->rows * t->row_bytes;

    if (bytes >= need->largest_bytes) {
        need->largest_bytes = bytes;
        need->table = table;
    }
    need->bytes += bytes;
}

/* Returns the only room that the table may use, or UINT32_MAX if there are others, or the rest. */
static uint32_t only_room(const struct split_instance *x, uint32_t table)
{
    uint32_t only = UINT32_MAX;

    for (uint32_t g = 0; g < x->gpu_count; g++) {
        if (!split_item_allows(x, x->items[table], g))
            continue;
        for (uint32_t mode = 0; mode <= SPLIT_MIXED; mode++) {
            if (!split_allows(x, table, g, mode))
                continue;
            if (mode >= x->level_count || (only != UINT32_MAX && only != split_room(x, mode, g)))
                return UINT32_MAX;
            only = split_room(x, mode, g);
        }
    }
    return only;
}

static bool may_rest(const struct split_instance *x, uint32_t table)
{
    for (uint32_t g = 0; g < x->gpu_count; g++)
        if (x->levels[(uint64_t)table * x->gpu_count + g] >> x->level_count & 1)
            return true;
    return false;
}

static enum embtier_err check_room(const struct split_instance *x, uint32_t room,
                                   const struct need *need, struct err_msg *msg)
{
    char name[512] = "";

    if (need->bytes <= x->room_bytes[room])
        return EMBTIER_OK;
    split_room_name(x, room, name, sizeof(name));
    model_begin_message(split_room_level(x, room), msg);
    err_append(msg,
               "%s: the tables that rules leave no other place take %s of %s, %s too many; the "
               "largest is table '%s' with %s",
               name, BYTES_TEXT(need->bytes), BYTES_TEXT(x->room_bytes[room]),
               BYTES_TEXT(need->bytes - x->room_bytes[room]),
               TEXT_SHOWN(x->model->tables[need->table].name), BYTES_TEXT(need->largest_bytes));
    return EMBTIER_INVALID;
}

/* Begins a message about all levels with the places of their capacities. */
static void begin_message(const struct split_instance *x, struct err_msg *msg)
{
    const char *last = "";

    err_write(msg, "%s", "");
    for (uint32_t m = 0; m < x->level_count; m++)
        model_add_place(&x->model->levels[m], &last, msg);
    err_append(msg, "%s", last[0] != '\0' ? ": " : "");
}

static enum embtier_err check_levels(const struct split_instance *x, const struct need *need,
                                     struct err_msg *msg)
{
    uint64_t bytes = 0;

    for (uint32_t r = 0; r < x->room_count; r++)
        bytes += x->room_bytes[r];
    if (need->bytes <= bytes)
        return EMBTIER_OK;
    begin_message(x, msg);
    err_append(msg,
               "the tables that rules keep out of the rest take %s, but all levels have %s, %s too "
               "few; the largest is table '%s' with %s",
               BYTES_TEXT(need->bytes), BYTES_TEXT(bytes), BYTES_TEXT(need->bytes - bytes),
               TEXT_SHOWN(x->model->tables[need->table].name), BYTES_TEXT(need->largest_bytes));
    return EMBTIER_INVALID;
}

enum embtier_err split_fit_check(const struct split_instance *x, struct err_msg *msg)
{
    struct need rooms[SPLIT_ROOMS_MAX] = { 0 }, levels = { 0 };

    for (uint32_t i = 0; i < x->table_count; i++) {
        const uint32_t room = only_room(x, i);

        if (room != UINT32_MAX)
            add(x, i, &rooms[room]);
        if (!may_rest(x, i))
            add(x, i, &levels);
    }
    for (uint32_t r = 0; r < x->room_count; r++)
        TRY(check_room(x, r, &rooms[r], msg));
    return check_levels(x, &levels, msg);
}
