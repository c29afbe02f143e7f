/* SPDX-License-Identifier: Apache-2.0 */
#include "base/system/thread_class.h"

#include <sched.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/macros.h"

#define SHORT_TURN_NS   100000 /* the shortest that Linux grants */
#define LONG_TURN_NS    10000000
#define BACKGROUND_NICE 10
#define NICE_MOST       19

/* The layout of sched_setattr(2), which the C library does not declare. */
struct attributes {
    uint32_t size;
    uint32_t policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns;
    uint64_t deadline_ns;
    uint64_t period_ns;
};

/* Acts on this thread and keeps its niceness. */
static void choose(uint32_t policy, uint64_t turn_ns)
{
    struct attributes attributes = {
        .size = sizeof(attributes),
        .policy = policy,
        .nice = getpriority(PRIO_PROCESS, 0), /* on Linux, of this thread */
        .runtime_ns = turn_ns,
    };

    if (sched_getscheduler(0) == SCHED_OTHER)
        (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
}

void thread_class_answering(void)
{
    choose(SCHED_OTHER, SHORT_TURN_NS);
}

void thread_class_upkeep(void)
{
    choose(SCHED_BATCH, LONG_TURN_NS);
}

void thread_class_background(void)
{
    const int nice = MIN(getpriority(PRIO_PROCESS, 0) + BACKGROUND_NICE, NICE_MOST);

    (void)setpriority(PRIO_PROCESS, 0, nice);
}
