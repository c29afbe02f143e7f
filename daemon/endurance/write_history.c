/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/endurance/write_history.h"

#include <jansson.h>
#include <string.h>

static const struct write_ring rings[] = { { 0, HISTORY_MINUTES, MINUTE_MS },
                                           { HISTORY_MINUTES, HISTORY_HOURS, HOUR_MS } };

_Static_assert(HISTORY_MINUTES + HISTORY_HOURS <= WRITE_TOTAL_MAX / WRITE_BUCKET_MAX,
               "a sum of all does not overflow");

void write_history_begin(struct write_history *history, uint64_t now_ms)
{
    *history = (struct write_history){ .past = { .since_ms = now_ms, .seen_ms = now_ms } };
}

void write_history_spread(struct write_history *history, uint64_t from_ms, uint64_t now_ms,
                          uint64_t bytes)
{
    write_rings_spread(&history->past, history->buckets, rings, ARRAY_LEN(rings), from_ms, now_ms,
                       bytes);
}

void write_history_add(struct write_history *history, uint64_t now_ms, uint64_t bytes)
{
    write_history_spread(history, MAX(now_ms, history->past.seen_ms), now_ms, bytes);
}

bool write_history_is_judged(const struct write_history *history, uint64_t now_ms)
{
    return write_past_is_judged(&history->past, now_ms);
}

struct write_rate write_history_rate(const struct write_history *history, enum write_window window,
                                     uint64_t now_ms)
{
    static const struct {
        uint32_t ring, buckets;
    } windows[WRITE_WINDOWS] = { [WRITE_HOUR] = { 0, HISTORY_MINUTES },
                                 [WRITE_DAY] = { 1, 24 },
                                 [WRITE_WEEK] = { 1, HISTORY_HOURS },
                                 [WRITE_NOW] = { 0, HISTORY_NOW } };

    return write_ring_rate(&history->past, history->buckets, &rings[windows[window].ring],
                           windows[window].buckets, now_ms);
}

/* ---- JSON ---- */

static json_t *numbers_to_json(const uint64_t *numbers, size_t count)
{
    json_t *const array = json_array();

    for (size_t i = 0; i < count; i++)
        if (json_array_append_new(array, json_integer((json_int_t)numbers[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

struct json_t *write_history_to_json(const struct write_history *history)
{
    return json_pack("{s:I, s:I, s:I, s:o, s:o}", "since_ms", (json_int_t)history->past.since_ms,
                     "seen_ms", (json_int_t)history->past.seen_ms, "total_bytes",
                     (json_int_t)history->past.total_bytes, "minutes",
                     numbers_to_json(history->buckets, HISTORY_MINUTES), "hours",
                     numbers_to_json(history->buckets + HISTORY_MINUTES, HISTORY_HOURS));
}

static bool take_number(const json_t *json, uint64_t *ret_number)
{
    const json_int_t number = json_integer_value(json);

    if (!json_is_integer(json) || number < 0)
        return false;
    *ret_number = (uint64_t)number;
    return true;
}

static bool take_numbers(const json_t *array, uint64_t *ret_numbers, size_t count)
{
    if (json_array_size(array) != count)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!take_number(json_array_get(array, i), &ret_numbers[i]) ||
            ret_numbers[i] > WRITE_BUCKET_MAX)
            return false;
    return true;
}

bool write_history_from_json(const struct json_t *json, struct write_history *ret_history)
{
    struct write_history history;

    if (!take_number(json_object_get(json, "since_ms"), &history.past.since_ms) ||
        !take_number(json_object_get(json, "total_bytes"), &history.past.total_bytes) ||
        !take_number(json_object_get(json, "seen_ms"), &history.past.seen_ms) ||
        !take_numbers(json_object_get(json, "minutes"), history.buckets, HISTORY_MINUTES) ||
        !take_numbers(json_object_get(json, "hours"), history.buckets + HISTORY_MINUTES,
                      HISTORY_HOURS))
        return false;
    if (history.past.seen_ms > INT64_MAX - DAY_MS) /* times behind it do not overflow */
        return false;
    *ret_history = history;
    return true;
}
