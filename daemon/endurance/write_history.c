/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/endurance/write_history.h"

#include <jansson.h>
#include <string.h>

#define MINUTE_MS UINT64_C(60000)
#define HOUR_MS   (60 * MINUTE_MS)
#define DAY_MS    (24 * HOUR_MS)

/* ---- Buckets ---- */

/* Empties the buckets between the newest and @now, which becomes the newest. */
static void advance(uint64_t *buckets, uint64_t length, uint64_t *newest, uint64_t now)
{
    const uint64_t passed = now > *newest ? now - *newest : 0;

    for (uint64_t i = 1; i <= MIN(passed, length); i++)
        buckets[(*newest + i) % length] = 0;
    *newest += passed;
}

void write_history_begin(struct write_history *history, uint64_t now_ms)
{
    *history = (struct write_history){ .since_ms = now_ms,
                                       .minute = now_ms / MINUTE_MS,
                                       .hour = now_ms / HOUR_MS };
}

void write_history_add(struct write_history *history, uint64_t now_ms, uint64_t bytes)
{
    if (now_ms + DAY_MS < history->minute * MINUTE_MS) {
        const uint64_t total_bytes = history->total_bytes;

        write_history_begin(history, now_ms);
        history->total_bytes = total_bytes;
    }
    advance(history->minutes, HISTORY_MINUTES, &history->minute, now_ms / MINUTE_MS);
    advance(history->hours, HISTORY_HOURS, &history->hour, now_ms / HOUR_MS);
    history->minutes[history->minute % HISTORY_MINUTES] += bytes;
    history->hours[history->hour % HISTORY_HOURS] += bytes;
    history->total_bytes += bytes;
}

/* The @count newest of @length buckets of @bucket_ms each. */
static struct write_rate rate_of(const uint64_t *buckets, uint64_t length, uint64_t newest,
                                 uint64_t count, uint64_t bucket_ms, uint64_t since_ms,
                                 uint64_t now_ms)
{
    const uint64_t oldest = newest >= count - 1 ? newest - (count - 1) : 0;
    const uint64_t begin_ms = MAX(oldest * bucket_ms, since_ms);
    struct write_rate rate = { .ms = now_ms > begin_ms ? now_ms - begin_ms : 0 };

    for (uint64_t i = oldest; i <= newest; i++)
        rate.bytes += buckets[i % length];
    return rate;
}

struct write_rate write_history_rate(const struct write_history *history, enum write_window window,
                                     uint64_t now_ms)
{
    if (window == WRITE_HOUR)
        return rate_of(history->minutes, HISTORY_MINUTES, history->minute, HISTORY_MINUTES,
                       MINUTE_MS, history->since_ms, now_ms);
    return rate_of(history->hours, HISTORY_HOURS, history->hour,
                   window == WRITE_DAY ? 24 : HISTORY_HOURS, HOUR_MS, history->since_ms, now_ms);
}

double write_rate_daily(const struct write_rate *rate)
{
    return rate->ms > 0 ? (double)rate->bytes * (double)DAY_MS / (double)rate->ms : 0;
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
    return json_pack("{s:I, s:I, s:I, s:I, s:o, s:o}", "since_ms", (json_int_t)history->since_ms,
                     "total_bytes", (json_int_t)history->total_bytes, "minute",
                     (json_int_t)history->minute, "hour", (json_int_t)history->hour, "minutes",
                     numbers_to_json(history->minutes, HISTORY_MINUTES), "hours",
                     numbers_to_json(history->hours, HISTORY_HOURS));
}

static bool take_number(const json_t *json, uint64_t *ret_number)
{
    const json_int_t number = json_integer_value(json);

    if (!json_is_integer(json) || number < 0)
        return false;
    *ret_number = (uint64_t)number;
    return true;
}

/* A sum of all does not overflow. */
static bool take_numbers(const json_t *array, uint64_t *ret_numbers, size_t count)
{
    if (json_array_size(array) != count)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!take_number(json_array_get(array, i), &ret_numbers[i]) ||
            ret_numbers[i] > (uint64_t)INT64_MAX / count)
            return false;
    return true;
}

bool write_history_from_json(const struct json_t *json, struct write_history *ret_history)
{
    struct write_history history;

    if (!take_number(json_object_get(json, "since_ms"), &history.since_ms) ||
        !take_number(json_object_get(json, "total_bytes"), &history.total_bytes) ||
        !take_number(json_object_get(json, "minute"), &history.minute) ||
        !take_number(json_object_get(json, "hour"), &history.hour) ||
        !take_numbers(json_object_get(json, "minutes"), history.minutes, HISTORY_MINUTES) ||
        !take_numbers(json_object_get(json, "hours"), history.hours, HISTORY_HOURS))
        return false;
    if (history.minute > INT64_MAX / MINUTE_MS || history.hour > INT64_MAX / HOUR_MS)
        return false;
    *ret_history = history;
    return true;
}
