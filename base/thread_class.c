/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread_class.h"

#include <sched.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/macros.h"

#define TURN_NS         100000 /* the shortest that Linux grants */
#define BACKGROUND_NICE 10
#define NICE_MOST       19

/* As sched_setattr(2) has it; the C library does not. */
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

void thread_class_answering(void)
{
    struct attributes attributes = {
        .size = sizeof(attributes),
        .policy = SCHED_OTHER,
        .nice = getpriority(PRIO_PROCESS, 0), /* of this thread, on Linux */
        .runtime_ns = TURN_NS,
    };

    if (sched_getscheduler(0) == SCHED_OTHER)
        (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
}

void thread_class_background(void)
{
    const int nice = MIN(getpriority(PRIO_PROCESS, 0) + BACKGROUND_NICE, NICE_MOST);

    (void)setpriority(PRIO_PROCESS, 0, nice);
}
