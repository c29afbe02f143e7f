/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/endurance/write_histories.h"

#include <assert.h>
#include <jansson.h>
#include <string.h>

#include "daemon/endurance/history_file.h"
#include "store/files/summed_json.h"

#define VERSION 2

/* ---- Reading ---- */

static bool take_line(const json_t *json, struct host_line *ret_line)
{
    const char *const text = json_string_value(json);

    if (!text || strlen(text) >= sizeof(ret_line->text))
        return false;
    memcpy(ret_line->text, text, strlen(text) + 1);
    return true;
}

static bool take_item(const json_t *json, struct named_history *ret_item)
{
    const json_t *const counter = json_object_get(json, "counter");

    if (!take_line(json_object_get(json, "id"), &ret_item->id) || !json_is_integer(counter) ||
        json_integer_value(counter) < 0)
        return false;
    ret_item->counter = (uint64_t)json_integer_value(counter);
    ret_item->is_over = json_is_true(json_object_get(json, "is_over"));
    ret_item->is_held = json_is_true(json_object_get(json, "is_held"));
    return write_history_from_json(json_object_get(json, "history"), &ret_item->history);
}

static bool is_stale(const struct named_history *item, uint64_t now_ms)
{
    return item->history.past.seen_ms / HOUR_MS + HISTORY_HOURS < now_ms / HOUR_MS;
}

static bool take_all(const json_t *root, uint64_t now_ms, struct write_histories *histories)
{
    const json_t *const items = json_object_get(root, "histories");
    const json_t *const max_dwpd = json_object_get(root, "max_dwpd");
    const json_t *item;
    size_t i;

    if (!json_is_array(items) || json_array_size(items) > WRITE_HISTORIES_MAX ||
        !take_line(json_object_get(root, "boot"), &histories->boot))
        return false;
    histories->max_dwpd = json_is_number(max_dwpd) ? json_number_value(max_dwpd) : -1;
    json_array_foreach(items, i, item)
    {
        struct named_history *const at = &histories->items[histories->count];

        if (!take_item(item, at))
            return false;
        if (!is_stale(at, now_ms) && histories->count < WRITE_HISTORIES_KEPT)
            histories->count++;
    }
    return true;
}

struct taking {
    uint64_t now_ms;
    struct write_histories *histories;
};

static bool take_file(const json_t *root, void *context)
{
    const struct taking *const taking = context;

    return take_all(root, taking->now_ms, taking->histories);
}

bool write_histories_load(const char *directory, uint64_t now_ms,
                          struct write_histories *ret_histories)
{
    static const struct history_file file = { WRITE_HISTORIES_FILE, VERSION, "devices", take_file };
    enum embtier_err err;

    *ret_histories = (struct write_histories){ .count = 0 };
    err = history_file_read(&file, directory, &(struct taking){ now_ms, ret_histories });
    if (err != EMBTIER_OK)
        *ret_histories = (struct write_histories){ .count = 0 };
    return history_file_may_save(err);
}

/* ---- Writing ---- */

static json_t *items_to_json(const struct write_histories *histories)
{
    json_t *const items = json_array();

    for (uint32_t i = 0; i < histories->count; i++) {
        const struct named_history *const item = &histories->items[i];

        if (json_array_append_new(items,
                                  json_pack("{s:s, s:I, s:b, s:b, s:o}", "id", item->id.text,
                                            "counter", (json_int_t)item->counter, "is_over",
                                            item->is_over, "is_held", item->is_held, "history",
                                            write_history_to_json(&item->history))) != 0) {
            json_decref(items);
            return NULL;
        }
    }
    return items;
}

enum embtier_err write_histories_save(const struct write_histories *histories,
                                      const char *directory, struct err_msg *msg)
{
    json_t *const root = json_pack("{s:s, s:i, s:s, s:f, s:o}", SUMMED_JSON_KEY, SUMMED_JSON_NONE,
                                   "version", VERSION, "boot", histories->boot.text, "max_dwpd",
                                   histories->max_dwpd, "histories", items_to_json(histories));
    const enum embtier_err err = summed_json_write(directory, WRITE_HISTORIES_FILE, root, msg);

    json_decref(root);
    return err;
}

struct named_history *write_histories_get(struct write_histories *histories,
                                          const struct host_line *id, uint64_t now_ms,
                                          bool *ret_is_new)
{
    struct named_history *item;

    *ret_is_new = false;
    for (uint32_t i = 0; i < histories->count; i++)
        if (strcmp(histories->items[i].id.text, id->text) == 0)
            return &histories->items[i];
    assert(histories->count < WRITE_HISTORIES_MAX);
    *ret_is_new = true;
    item = &histories->items[histories->count++];
    *item = (struct named_history){ .id = *id };
    write_history_begin(&item->history, now_ms);
    return item;
}
