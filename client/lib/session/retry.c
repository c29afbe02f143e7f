/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/session/retry.h"

#include <sys/random.h>
#include <time.h>

#include "base/macros.h"

#define NS_PER_S  UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)

/* ---- The system ---- */

static void sleep_for(void *context, uint64_t ns)
{
    struct timespec left = { .tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S) };

    (void)context;
    while (nanosleep(&left, &left) != 0)
        continue; /* a signal is no reason to come early */
}

static uint64_t system_chance(void *context)
{
    uint64_t bits;

    (void)context;
    if (getrandom(&bits, sizeof(bits), GRND_NONBLOCK) != (ssize_t)sizeof(bits))
        bits = clock_now_ns(&clock_monotonic) * UINT64_C(0x9e3779b97f4a7c15);
    return bits;
}

static uint64_t now_ns(void *context)
{
    (void)context;
    return clock_now_ns(&clock_monotonic);
}

const struct retry_outside retry_outside_system = { .clock = { .now_ns = now_ns },
                                                    .sleep = sleep_for,
                                                    .chance = system_chance };

/* ---- Pauses ---- */

/* Returns the longest pause after so many failures. */
static uint64_t pause_limit_ns(uint32_t failures)
{
    uint64_t limit_ms = RETRY_PAUSE_MS_FIRST;

    for (uint32_t i = 1; i < failures && limit_ms < RETRY_PAUSE_MS_MOST; i++)
        limit_ms *= 2;
    return MIN(limit_ms, (uint64_t)RETRY_PAUSE_MS_MOST) * NS_PER_MS;
}

static void note_failure(struct retry *retry, const struct retry_outside *outside,
                         enum embtier_err err)
{
    const uint64_t limit_ns = pause_limit_ns(++retry->failures);

    retry->last = err;
    retry->next_ns =
        clock_now_ns(&outside->clock) + outside->chance(outside->context) % (limit_ns + 1);
}

/* Sleeps until the next attempt may begin. False: @deadline_ns comes first. */
static bool pause_until_next(const struct retry *retry, const struct retry_outside *outside,
                             uint64_t deadline_ns)
{
    const uint64_t until_ns = MIN(retry->next_ns, deadline_ns);
    const uint64_t ns = clock_since(until_ns, clock_now_ns(&outside->clock));

    if (ns > 0)
        outside->sleep(outside->context, ns);
    return retry->next_ns <= deadline_ns;
}

static enum embtier_err attempt_once(struct retry *retry, const struct retry_outside *outside,
                                     retry_fn *attempt, void *context)
{
    const enum embtier_err err = attempt(context);

    if (retry_may_help(err))
        note_failure(retry, outside, err);
    else
        *retry = (struct retry){ 0 };
    return err;
}

enum embtier_err retry_run(struct retry *retry, const struct retry_outside *outside,
                           uint32_t limit_ms, retry_fn *attempt, void *context)
{
    const uint64_t deadline_ns = limit_ms == RETRY_FOREVER_MS
                                     ? UINT64_MAX
                                     : clock_now_ns(&outside->clock) + limit_ms * NS_PER_MS;

    if (limit_ms == 0)
        return attempt_once(retry, outside, attempt, context);
    while (pause_until_next(retry, outside, deadline_ns)) {
        const enum embtier_err err = attempt_once(retry, outside, attempt, context);

        if (!retry_may_help(err))
            return err;
    }
    return err_not_ok(retry->last);
}

bool retry_may_help(enum embtier_err err)
{
    switch (err) {
    case EMBTIER_UNREACHABLE:
    case EMBTIER_TIMEOUT:
    case EMBTIER_BUSY:
    case EMBTIER_DISCONNECTED:
    case EMBTIER_SHUTDOWN:
        return true;
    default:
        return false;
    }
}
