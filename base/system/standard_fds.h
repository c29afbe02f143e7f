/* SPDX-License-Identifier: Apache-2.0 */
/* standard_fds.h: makes sure that descriptors 0, 1 and 2 are open, even if the program was started
 * without them.
 *
 * Otherwise the first file that is opened gets one of these numbers, and the log is written into
 * it. */
#ifndef EMBTIER_BASE_SYSTEM_STANDARD_FDS_H
#define EMBTIER_BASE_SYSTEM_STANDARD_FDS_H

#include "base/macros.h"

/* Opens /dev/null for those that are closed. Call it before anything else is opened. Returns 0, or
 * -1 with errno. */
MUST_CHECK int standard_fds_open(void);
/* Call it at the end of a program that has printed to standard output. Returns 0, or -1 with errno
 * if not all of it was written, as on a full disk. */
MUST_CHECK int standard_fds_flush(void);

#endif
