/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#define NS_PER_SECOND UINT64_C(1000000000)

static uint64_t monotonic_now_ns(void *context)
{
    struct timespec now;

    (void)context;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

uint64_t clock_wall_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec < 0 ? 0 : (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

const struct clock clock_monotonic = { .now_ns = monotonic_now_ns };

struct timespec clock_moment(uint64_t monotonic_ns)
{
    return (struct timespec){ .tv_sec = (time_t)(monotonic_ns / NS_PER_SECOND),
                              .tv_nsec = (long)(monotonic_ns % NS_PER_SECOND) };
}

struct timespec clock_until(uint64_t ns)
{
    return clock_moment(clock_now_ns(&clock_monotonic) + ns);
}

void clock_init_cond(pthread_cond_t *ret_cond)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(ret_cond, &attributes);
    pthread_condattr_destroy(&attributes);
}
