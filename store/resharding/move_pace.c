/* SPDX-License-Identifier: Apache-2.0 */
#include "store/resharding/move_pace.h"

#include <time.h>

#include "base/clock.h"
#include "base/macros.h"
#include "store/database/database.h"

#define REST_NS     (5L * 1000 * 1000)
#define NAP_NS      (UINT64_C(50) * 1000 * 1000) /* it looks so often if it is to end */
#define AHEAD_NS    (UINT64_C(20) * 1000 * 1000) /* a thread that wakes late may catch up so much */
#define NS_PER_S    UINT64_C(1000000000)
#define GIVE_WAY_NS (UINT64_C(60) * NS_PER_S)
#define FLUSH_NS    (UINT64_C(100) * 1000 * 1000) /* steady writes always have a buffer to flush */

static void nap(uint64_t ns)
{
    nanosleep(&(struct timespec){ .tv_nsec = (long)MIN(ns, (uint64_t)NAP_NS) }, NULL);
}

enum embtier_err move_pace_look(const struct move_pace *pace, struct err_msg *msg)
{
    return pace->look ? pace->look(pace->context, msg) : EMBTIER_OK;
}

void move_pace_stir(struct move_pace *pace)
{
    atomic_store_explicit(&pace->stirred_at_ns, clock_now_ns(&clock_monotonic),
                          memory_order_relaxed);
}

enum embtier_err move_pace_take(struct move_pace *pace, uint64_t bytes, struct err_msg *msg)
{
    const uint64_t rate = atomic_load_explicit(&pace->rate_bytes, memory_order_relaxed);
    uint64_t now_ns = clock_now_ns(&clock_monotonic);

    atomic_store_explicit(&pace->stirred_at_ns, now_ns, memory_order_relaxed);
    TRY(move_pace_look(pace, msg));
    if (rate == 0)
        return EMBTIER_OK;
    pace->free_at_ns = MAX(pace->free_at_ns, now_ns - MIN(now_ns, (uint64_t)AHEAD_NS));
    pace->free_at_ns += (uint64_t)((double)move_pace_due(bytes) / (double)rate * (double)NS_PER_S);
    while (now_ns < pace->free_at_ns) {
        nap(pace->free_at_ns - now_ns);
        TRY(move_pace_look(pace, msg));
        now_ns = clock_now_ns(&clock_monotonic);
    }
    return EMBTIER_OK;
}

enum embtier_err move_pace_rest(const struct move_pace *pace, struct err_msg *msg)
{
    nap((uint64_t)REST_NS);
    return move_pace_look(pace, msg);
}

enum embtier_err move_pace_give_way(const struct move_pace *pace, struct database *database,
                                    struct err_msg *msg)
{
    const uint64_t began_ns = clock_now_ns(&clock_monotonic);

    for (;;) {
        const uint64_t waited_ns = clock_now_ns(&clock_monotonic) - began_ns;

        if (database_is_failed(database) || waited_ns >= GIVE_WAY_NS ||
            !(database_is_near_limit(database) ||
              (database_flushes(database) && waited_ns < FLUSH_NS)))
            return EMBTIER_OK;
        TRY(move_pace_rest(pace, msg));
    }
}
