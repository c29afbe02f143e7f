/* SPDX-License-Identifier: Apache-2.0 */
/* thread_room.h: checks that this process may start a number of threads.
 *
 * RocksDB ends the process if it cannot start a thread, so the server checks before it
 * starts. */
#ifndef EMBTIER_BASE_SYSTEM_THREAD_ROOM_H
#define EMBTIER_BASE_SYSTEM_THREAD_ROOM_H

#include <stdint.h>

#include "base/err.h"

/* Makes @count threads that all exist at the same time, and ends them. BUSY: one could not be
 * made. */
MUST_CHECK enum embtier_err thread_room_check(uint32_t count, struct err_msg *msg);

#endif
