/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/endurance/write_history.h"

#include <jansson.h>
#include <string.h>

#define MINUTE_MS UINT64_C(60000)
#define HOUR_MS   (60 * MINUTE_MS)
#define DAY_MS    (24 * HOUR_MS)

/* ---- Buckets ---- */

struct buckets {
    uint64_t *bytes;
    uint64_t length;
    uint64_t bucket_ms;
};
#define MINUTES(history) ((struct buckets){ (history)->minutes, HISTORY_MINUTES, MINUTE_MS })
#define HOURS(history)   ((struct buckets){ (history)->hours, HISTORY_HOURS, HOUR_MS })

/* Bytes of a time, written evenly. */
struct writing {
    uint64_t from_ms, until_ms;
    uint64_t bytes;
};

/* Empties the buckets between the newest, of @seen_ms, and that of @now_ms. */
static void advance(struct buckets buckets, uint64_t seen_ms, uint64_t now_ms)
{
    const uint64_t newest = seen_ms / buckets.bucket_ms;
    const uint64_t passed = now_ms / buckets.bucket_ms - newest;

    for (uint64_t i = 1; i <= MIN(passed, buckets.length); i++)
        buckets.bytes[(newest + i) % buckets.length] = 0;
}

static uint64_t bytes_until(const struct writing *writing, uint64_t ms)
{
    if (ms <= writing->from_ms)
        return 0;
    if (ms >= writing->until_ms)
        return writing->bytes;
    return (uint64_t)((double)writing->bytes * (double)(ms - writing->from_ms) /
                      (double)(writing->until_ms - writing->from_ms));
}

/* Bytes written before the oldest bucket are left out. */
static void fill(struct buckets buckets, const struct writing *writing)
{
    const uint64_t newest = writing->until_ms / buckets.bucket_ms;
    const uint64_t oldest = newest >= buckets.length - 1 ? newest - (buckets.length - 1) : 0;

    for (uint64_t i = MAX(oldest, writing->from_ms / buckets.bucket_ms); i <= newest; i++)
        buckets.bytes[i % buckets.length] += bytes_until(writing, (i + 1) * buckets.bucket_ms) -
                                             bytes_until(writing, i * buckets.bucket_ms);
}

void write_history_begin(struct write_history *history, uint64_t now_ms)
{
    *history = (struct write_history){ .since_ms = now_ms, .seen_ms = now_ms };
}

void write_history_spread(struct write_history *history, uint64_t from_ms, uint64_t now_ms,
                          uint64_t bytes)
{
    struct writing writing = { .bytes = bytes };

    if (now_ms + DAY_MS < history->seen_ms) {
        const uint64_t total_bytes = history->total_bytes;

        write_history_begin(history, now_ms);
        history->total_bytes = total_bytes;
    }
    writing.until_ms = MAX(now_ms, history->seen_ms);
    writing.from_ms = MIN(MAX(from_ms, history->since_ms), writing.until_ms);
    advance(MINUTES(history), history->seen_ms, writing.until_ms);
    advance(HOURS(history), history->seen_ms, writing.until_ms);
    fill(MINUTES(history), &writing);
    fill(HOURS(history), &writing);
    history->seen_ms = writing.until_ms;
    history->total_bytes += bytes;
}

void write_history_add(struct write_history *history, uint64_t now_ms, uint64_t bytes)
{
    write_history_spread(history, MAX(now_ms, history->seen_ms), now_ms, bytes);
}

bool write_history_is_judged(const struct write_history *history, uint64_t now_ms)
{
    return now_ms >= history->since_ms && now_ms - history->since_ms >= HISTORY_JUDGED_MS;
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
        return rate_of(history->minutes, HISTORY_MINUTES, history->seen_ms / MINUTE_MS,
                       HISTORY_MINUTES, MINUTE_MS, history->since_ms, now_ms);
    return rate_of(history->hours, HISTORY_HOURS, history->seen_ms / HOUR_MS,
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
    return json_pack("{s:I, s:I, s:I, s:o, s:o}", "since_ms", (json_int_t)history->since_ms,
                     "seen_ms", (json_int_t)history->seen_ms, "total_bytes",
                     (json_int_t)history->total_bytes, "minutes",
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
        !take_number(json_object_get(json, "seen_ms"), &history.seen_ms) ||
        !take_numbers(json_object_get(json, "minutes"), history.minutes, HISTORY_MINUTES) ||
        !take_numbers(json_object_get(json, "hours"), history.hours, HISTORY_HOURS))
        return false;
    if (history.seen_ms > INT64_MAX - DAY_MS) /* times behind it do not overflow */
        return false;
    *ret_history = history;
    return true;
}
