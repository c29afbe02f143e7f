/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/process/stop_patience.h"

#include "base/clock.h"

void stop_patience_begin(struct stop_patience *patience, uint64_t left, uint64_t now_ns)
{
    *patience = (struct stop_patience){
        .left = left, .since_ns = now_ns, .looked_ns = now_ns, .told = STOP_GOES_ON
    };
}

bool stop_patience_is_due(const struct stop_patience *patience, uint64_t now_ns)
{
    return clock_since(now_ns, patience->looked_ns) >= STOP_TELL_NS;
}

static enum stop_state look(struct stop_patience *patience, uint64_t left, bool fails,
                            uint64_t now_ns)
{
    if (left < patience->left) {
        patience->left = left;
        patience->since_ns = now_ns;
    }
    if (fails)
        return STOP_FAILS;
    return clock_since(now_ns, patience->since_ns) >= STOP_STUCK_NS ? STOP_STUCK : STOP_GOES_ON;
}

enum stop_state stop_patience_tell(struct stop_patience *patience, uint64_t left, bool fails,
                                   uint64_t now_ns)
{
    patience->looked_ns = now_ns;
    patience->told = look(patience, left, fails, now_ns);
    return patience->told;
}

bool stop_patience_ends(struct stop_patience *patience, uint64_t left, bool fails, uint64_t now_ns)
{
    return look(patience, left, fails, now_ns) != STOP_GOES_ON && patience->told != STOP_GOES_ON;
}
