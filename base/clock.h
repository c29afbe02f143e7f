/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h: time, as something tests can hold still.
 *
 * Durations are measured by the monotonic clock. The system's clock, which may be put back, tells
 * when something was, for people; an age by it is never negative. */
#ifndef EMBTIER_BASE_CLOCK_H
#define EMBTIER_BASE_CLOCK_H

#include <stdint.h>

struct clock {
    uint64_t (*now_ns)(void *context); /* monotonic */
    void *context;
};

/* CLOCK_MONOTONIC. */
extern const struct clock clock_monotonic;

/* The system's clock, since 1970. */
uint64_t clock_wall_ms(void);

/* From @then to @now, of one clock; 0 where another thread, or a clock that was put back, has made
 * @then the later one. */
static inline uint64_t clock_since(uint64_t now, uint64_t then)
{
    return now > then ? now - then : 0;
}

static inline uint64_t clock_now_ns(const struct clock *clock)
{
    return clock->now_ns(clock->context);
}

#endif
