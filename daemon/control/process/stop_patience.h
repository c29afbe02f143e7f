/* SPDX-License-Identifier: Apache-2.0 */
/* stop_patience.h: whether a further signal may end a stop that writes rows back.
 *
 * Shells and service managers send two signals where one is meant: to a process and to its group,
 * or SIGINT and SIGTERM. So a stop is never given up while the disk takes rows. It may be given up
 * when the disk refuses them, or has taken none for long. The log must have said so before, because
 * until then no user can have meant it. Thread: the one that stops. */
#ifndef EMBTIER_DAEMON_CONTROL_PROCESS_STOP_PATIENCE_H
#define EMBTIER_DAEMON_CONTROL_PROCESS_STOP_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

#define STOP_TELL_NS  (UINT64_C(1000) * 1000 * 1000)      /* between two lines of the log */
#define STOP_STUCK_NS (UINT64_C(10) * 1000 * 1000 * 1000) /* without progress */

enum stop_state {
    STOP_GOES_ON,
    STOP_FAILS, /* the disk refuses writes */
    STOP_STUCK, /* it refuses nothing, and nothing is written */
};

struct stop_patience {
    uint64_t left; /* the least that was left so far */
    uint64_t since_ns;
    uint64_t looked_ns;
    enum stop_state told;
};

/* @left: how much is not written yet, in any unit. */
void stop_patience_begin(struct stop_patience *patience, uint64_t left, uint64_t now_ns);
/* True if it is time to log how far the stop is; the caller then calls stop_patience_tell(). */
bool stop_patience_is_due(const struct stop_patience *patience, uint64_t now_ns);
/* Returns the state, which the caller then logs. */
enum stop_state stop_patience_tell(struct stop_patience *patience, uint64_t left, bool fails,
                                   uint64_t now_ns);
/* True if a signal that came just now ends the stop: neither the state told last nor the present
 * one is STOP_GOES_ON. */
bool stop_patience_ends(struct stop_patience *patience, uint64_t left, bool fails, uint64_t now_ns);

#endif
