/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transport/listen/held_address.h"

#include <time.h>

#include "base/clock.h"
#include "base/log/log.h"

#define PATIENCE_NS UINT64_C(3000000000)
#define PAUSE_NS    20000000L

bool held_address_wait(struct held_address *held, const char *name)
{
    const uint64_t now_ns = clock_now_ns(&clock_monotonic);

    if (held->since_ns == 0) {
        held->since_ns = now_ns;
        log_debug("an address is in use; a server that was killed may hold it for a moment",
                  "address=%s", LOG_QUOTED(name));
    }
    if (now_ns - held->since_ns >= PATIENCE_NS)
        return false;
    (void)nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
    return true;
}
