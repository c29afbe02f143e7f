/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/endurance/table_histories.h"

#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/endurance/history_file.h"
#include "store/files/summed_json.h"

#define VERSION    1
#define FIRST_ROOM 64

struct item {
    uint32_t table_id;
    char uuid[TABLE_UUID_CHARS + 1];
    uint64_t seen_bytes; /* at the last round; 0 at the server's start */
    bool is_here;        /* in this round */
    struct table_history history;
};

struct table_histories {
    const char *directory;
    bool may_save;
    pthread_mutex_t lock; /* guards all below */
    struct item *items;   /* by ascending number */
    uint32_t count, room;
    struct table_history shared;
    uint64_t all_bytes;   /* at the last round */
    uint64_t owed_bytes;  /* that counted as shared, before their table was known */
    uint64_t round_bytes; /* of the tables in this round */
    uint64_t own_bytes;   /* of histories that were saved, not yet in a round */
    bool is_changed;      /* since it was saved */
};

/* ---- Items ---- */

/* Returns the place of the first item whose number is not below @table_id. */
static uint32_t place_of(const struct table_histories *histories, uint32_t table_id)
{
    uint32_t low = 0, high = histories->count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;

        if (histories->items[middle].table_id < table_id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct item *find(const struct table_histories *histories, uint32_t table_id)
{
    const uint32_t place = place_of(histories, table_id);

    return place < histories->count && histories->items[place].table_id == table_id
               ? &histories->items[place]
               : NULL;
}

/* False: out of memory, or as many as there may be. */
static bool make_room(struct table_histories *histories)
{
    const uint32_t room =
        histories->room > 0 ? MIN(2 * histories->room, TABLE_HISTORIES_MAX) : FIRST_ROOM;
    struct item *items;

    if (histories->count < histories->room)
        return true;
    if (histories->count == TABLE_HISTORIES_MAX)
        return false;
    items = realloc(histories->items, room * sizeof(*items));
    if (!items)
        return false;
    histories->items = items;
    histories->room = room;
    return true;
}

static struct item *insert(struct table_histories *histories, uint32_t table_id, const char *uuid)
{
    const uint32_t place = place_of(histories, table_id);
    struct item *item;

    if (!make_room(histories))
        return NULL;
    item = &histories->items[place];
    memmove(item + 1, item, (histories->count - place) * sizeof(*item));
    histories->count++;
    *item = (struct item){ .table_id = table_id };
    memcpy(item->uuid, uuid, strlen(uuid) + 1);
    return item;
}

/* ---- Rounds ---- */

void table_histories_begin(struct table_histories *histories)
{
    pthread_mutex_lock(&histories->lock);
    for (uint32_t i = 0; i < histories->count; i++)
        histories->items[i].is_here = false;
    histories->round_bytes = 0;
    pthread_mutex_unlock(&histories->lock);
}

/* The bytes of a table that is gone stay among those of the server. */
static void give_to_shared(struct table_histories *histories, struct item *item, uint64_t now_ms)
{
    table_history_add(&histories->shared, now_ms, 0);
    table_history_add(&item->history, now_ms, 0);
    table_history_join(&histories->shared, &item->history);
    table_history_begin(&item->history, now_ms);
}

static void add(struct table_histories *histories, const struct table_bytes *table, uint64_t now_ms)
{
    struct item *item = find(histories, table->table_id);
    uint64_t bytes;

    if (!item) {
        item = insert(histories, table->table_id, table->uuid);
        if (!item)
            return;
        table_history_begin(&item->history, now_ms);
    } else if (strcmp(item->uuid, table->uuid) != 0) {
        give_to_shared(histories, item, now_ms);
        memcpy(item->uuid, table->uuid, sizeof(item->uuid));
        item->seen_bytes = 0;
    }
    bytes = clock_since(table->bytes, item->seen_bytes);
    item->seen_bytes = table->bytes;
    item->is_here = true;
    table_history_add(&item->history, now_ms, bytes);
    histories->round_bytes += bytes;
}

void table_histories_add(struct table_histories *histories, const struct table_bytes *tables,
                         uint32_t count, uint64_t now_ms)
{
    pthread_mutex_lock(&histories->lock);
    for (uint32_t i = 0; i < count; i++)
        add(histories, &tables[i], now_ms);
    pthread_mutex_unlock(&histories->lock);
}

static void remove_gone(struct table_histories *histories, uint64_t now_ms)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < histories->count; i++) {
        if (histories->items[i].is_here)
            histories->items[kept++] = histories->items[i];
        else
            give_to_shared(histories, &histories->items[i], now_ms);
    }
    histories->is_changed = histories->is_changed || kept < histories->count;
    histories->count = kept;
}

void table_histories_end(struct table_histories *histories, uint64_t all_bytes, bool is_whole,
                         uint64_t now_ms)
{
    uint64_t bytes, shared, own;

    pthread_mutex_lock(&histories->lock);
    bytes = clock_since(all_bytes, histories->all_bytes);
    histories->all_bytes = all_bytes;
    histories->owed_bytes += histories->round_bytes;
    shared = clock_since(bytes, histories->owed_bytes);
    histories->owed_bytes = clock_since(histories->owed_bytes, bytes);
    table_history_add(&histories->shared, now_ms, shared);
    if (is_whole)
        remove_gone(histories, now_ms);
    own = MIN(histories->own_bytes, bytes);
    histories->own_bytes -= own;
    histories->is_changed = histories->is_changed || bytes > own;
    pthread_mutex_unlock(&histories->lock);
}

void table_histories_note_own(struct table_histories *histories, uint64_t bytes)
{
    pthread_mutex_lock(&histories->lock);
    histories->own_bytes += bytes;
    pthread_mutex_unlock(&histories->lock);
}

/* ---- Figures ---- */

bool table_histories_get(struct table_histories *histories, uint32_t table_id,
                         struct table_history *ret_history)
{
    const struct item *item;

    pthread_mutex_lock(&histories->lock);
    item = find(histories, table_id);
    if (item)
        *ret_history = item->history;
    pthread_mutex_unlock(&histories->lock);
    return item != NULL;
}

void table_histories_shared(struct table_histories *histories, struct table_history *ret_history)
{
    pthread_mutex_lock(&histories->lock);
    *ret_history = histories->shared;
    pthread_mutex_unlock(&histories->lock);
}

/* ---- Reading ---- */

static bool take_number(const json_t *json, uint64_t most, uint64_t *ret_number)
{
    const json_int_t number = json_integer_value(json);

    if (!json_is_integer(json) || number < 0 || (uint64_t)number > most)
        return false;
    *ret_number = (uint64_t)number;
    return true;
}

/* Times behind it do not overflow. */
static bool take_history(const json_t *json, struct table_history *ret_history)
{
    const char *const buckets = json_string_value(json_object_get(json, "buckets"));

    return buckets &&
           take_number(json_object_get(json, "since_ms"), INT64_MAX - DAY_MS,
                       &ret_history->past.since_ms) &&
           take_number(json_object_get(json, "seen_ms"), INT64_MAX - DAY_MS,
                       &ret_history->past.seen_ms) &&
           take_number(json_object_get(json, "total_bytes"), INT64_MAX,
                       &ret_history->past.total_bytes) &&
           table_history_parse(buckets, ret_history);
}

/* They come by ascending number. */
static bool take_table(const json_t *json, struct table_histories *histories)
{
    const char *const uuid = json_string_value(json_object_get(json, "uuid"));
    const uint32_t count = histories->count;
    struct table_history history;
    struct item *item;
    uint64_t table_id;

    if (!uuid || strlen(uuid) > TABLE_UUID_CHARS ||
        !take_number(json_object_get(json, "id"), UINT32_MAX, &table_id) ||
        (count > 0 && table_id <= histories->items[count - 1].table_id) ||
        !take_history(json, &history))
        return false;
    item = insert(histories, (uint32_t)table_id, uuid);
    if (!item)
        return false;
    item->history = history;
    return true;
}

static bool take_file(const json_t *root, void *context)
{
    struct table_histories *const histories = context;
    const json_t *const tables = json_object_get(root, "tables");
    const json_t *table;
    size_t i;

    if (!json_is_array(tables) ||
        !take_history(json_object_get(root, "shared"), &histories->shared))
        return false;
    json_array_foreach(tables, i, table)
    {
        if (!take_table(table, histories))
            return false;
    }
    return true;
}

enum embtier_err table_histories_new(const char *directory, uint64_t now_ms,
                                     struct table_histories **ret_histories)
{
    static const struct history_file file = { TABLE_HISTORIES_FILE, VERSION, "tables", take_file };
    struct table_histories *const histories = calloc(1, sizeof(*histories));
    enum embtier_err err;

    if (!histories || !make_room(histories)) {
        free(histories);
        return EMBTIER_NO_MEMORY;
    }
    pthread_mutex_init(&histories->lock, NULL);
    histories->directory = directory;
    err = history_file_read(&file, directory, histories);
    histories->may_save = history_file_may_save(err);
    if (err != EMBTIER_OK) {
        histories->count = 0;
        table_history_begin(&histories->shared, now_ms);
    }
    *ret_histories = histories;
    return EMBTIER_OK;
}

void table_histories_free(struct table_histories *histories)
{
    if (!histories)
        return;
    pthread_mutex_destroy(&histories->lock);
    free(histories->items);
    free(histories);
}

/* ---- Writing ---- */

static json_t *history_to_json(const struct table_history *history)
{
    char buckets[TABLE_HISTORY_TEXT_BYTES];

    table_history_print(history, buckets);
    return json_pack("{s:I, s:I, s:I, s:s}", "since_ms", (json_int_t)history->past.since_ms,
                     "seen_ms", (json_int_t)history->past.seen_ms, "total_bytes",
                     (json_int_t)history->past.total_bytes, "buckets", buckets);
}

static json_t *item_to_json(const struct item *item)
{
    json_t *const json = history_to_json(&item->history);

    if (json && json_object_set_new(json, "id", json_integer((json_int_t)item->table_id)) == 0 &&
        json_object_set_new(json, "uuid", json_string(item->uuid)) == 0)
        return json;
    json_decref(json);
    return NULL;
}

static json_t *items_to_json(const struct item *items, uint32_t count)
{
    json_t *const array = json_array();

    for (uint32_t i = 0; i < count; i++)
        if (json_array_append_new(array, item_to_json(&items[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

/* Copies what changed, so that nobody waits while it is printed. False: out of memory. */
static bool take_copy(struct table_histories *histories, struct table_histories *ret_copy)
{
    struct item *items = NULL;
    bool ok = true;

    pthread_mutex_lock(&histories->lock);
    if (histories->is_changed) {
        items = malloc((histories->count + 1) * sizeof(*items));
        ok = items != NULL;
    }
    if (items && histories->count > 0)
        memcpy(items, histories->items, histories->count * sizeof(*items));
    *ret_copy = (struct table_histories){ .items = items,
                                          .count = histories->count,
                                          .shared = histories->shared };
    histories->is_changed = histories->is_changed && !ok;
    pthread_mutex_unlock(&histories->lock);
    return ok;
}

enum embtier_err table_histories_save(struct table_histories *histories, struct err_msg *msg)
{
    struct table_histories copy;
    enum embtier_err err;
    json_t *root;

    if (!histories->may_save)
        return EMBTIER_OK; /* the file may be good */
    if (!take_copy(histories, &copy))
        return err_set(msg, EMBTIER_NO_MEMORY, TABLE_HISTORIES_FILE ": out of memory");
    if (!copy.items)
        return EMBTIER_OK;
    root = json_pack("{s:s, s:i, s:o, s:o}", SUMMED_JSON_KEY, SUMMED_JSON_NONE, "version", VERSION,
                     "shared", history_to_json(&copy.shared), "tables",
                     items_to_json(copy.items, copy.count));
    free(copy.items);
    err = summed_json_write(histories->directory, TABLE_HISTORIES_FILE, root, msg);
    json_decref(root);
    if (err == EMBTIER_OK)
        return EMBTIER_OK;
    pthread_mutex_lock(&histories->lock);
    histories->is_changed = true;
    pthread_mutex_unlock(&histories->lock);
    return err;
}
