/* SPDX-License-Identifier: Apache-2.0 */
/* compaction_pace.h: how many bytes a second compactions may write, from the limit that is set and
 * from how the databases are.
 *
 * A limit must not stop updates. It rises as a database comes nearer to the point at which it takes
 * no more, and goes before that. It goes, too, while no client has read or written rows on SSD for
 * a while: compaction then catches up at no one's cost. On a full disk it goes since work that
 * needs the reserve waits for compactions under way. Thread: one at a time. */
#ifndef EMBTIER_STORE_DATABASE_COMPACTION_PACE_H
#define EMBTIER_STORE_DATABASE_COMPACTION_PACE_H

#include <stdint.h>

#include "store/database/compaction_types.h"

#define COMPACTION_QUIET_NS (UINT64_C(10) * 1000000000)

struct compaction_pace {
    uint64_t rows;          /* read and written, at the last call */
    uint64_t rows_since_ns; /* when @rows was first seen; 0: never called */
};

/* How the databases are now. */
struct compaction_strain {
    double nearest; /* how near its limit that database is which is nearest: 1 at the limit */
    bool is_near;   /* one is urgent, as it is near its limit */
    bool is_paused; /* none may begin, as there is no space, and work waits for those that run */
    uint64_t rows;  /* read and written so far, by all */
};

/* Returns the bytes a second that compactions may write now, of @limit (0: none), and why. */
uint64_t compaction_pace(struct compaction_pace *pace, uint64_t limit,
                         const struct compaction_strain *strain, uint64_t now_ns,
                         enum compaction_pace_reason *ret_reason);

#endif
