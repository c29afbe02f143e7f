/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h: time, behind an interface that tests can hold still.
 *
 * Durations use the monotonic clock. The system's clock, which may be put back, gives dates for
 * people; an age computed from it is never negative. */
#ifndef EMBTIER_BASE_CLOCK_H
#define EMBTIER_BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

struct clock {
    uint64_t (*now_ns)(void *context); /* monotonic */
    void *context;
};

/* CLOCK_MONOTONIC. */
extern const struct clock clock_monotonic;

/* Milliseconds since 1970, by the system's clock. */
uint64_t clock_wall_ms(void);

/* Limits of waits that end with CLOCK_MONOTONIC: @ns from now, and at a moment of
 * clock_monotonic. */
struct timespec clock_until(uint64_t ns);
struct timespec clock_moment(uint64_t monotonic_ns);
/* Makes a condition variable that takes such limits. */
void clock_init_cond(pthread_cond_t *ret_cond);

/* The time from @then to @now, both from one clock. Returns 0 if @then is later, because another
 * thread read it later or the clock was put back. */
static inline uint64_t clock_since(uint64_t now, uint64_t then)
{
    return now > then ? now - then : 0;
}

static inline uint64_t clock_now_ns(const struct clock *clock)
{
    return clock->now_ns(clock->context);
}

#endif
