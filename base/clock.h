/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h: time, as something tests can hold still. */
#ifndef EMBTIER_BASE_CLOCK_H
#define EMBTIER_BASE_CLOCK_H

#include <stdint.h>

struct clock {
    uint64_t (*now_ns)(void *context); /* monotonic */
    void *context;
};

/* CLOCK_MONOTONIC. */
extern const struct clock clock_monotonic;

static inline uint64_t clock_now_ns(const struct clock *clock)
{
    return clock->now_ns(clock->context);
}

#endif
