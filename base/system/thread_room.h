/* SPDX-License-Identifier: Apache-2.0 */
/* thread_room.h: whether this process may have so many more threads.
 *
 * RocksDB ends the process where it cannot make one of its own, so a start asks first. */
#ifndef EMBTIER_BASE_SYSTEM_THREAD_ROOM_H
#define EMBTIER_BASE_SYSTEM_THREAD_ROOM_H

#include <stdint.h>

#include "base/err.h"

/* Makes @count threads, all there at the same time, and ends them. BUSY: one could not be made. */
MUST_CHECK enum embtier_err thread_room_check(uint32_t count, struct err_msg *msg);

#endif
