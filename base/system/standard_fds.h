/* SPDX-License-Identifier: Apache-2.0 */
/* standard_fds.h: descriptors 0, 1 and 2 are open, even if a program was started without them.
 *
 * Else the first file that is opened becomes one of them, and the log is written into it. */
#ifndef EMBTIER_BASE_SYSTEM_STANDARD_FDS_H
#define EMBTIER_BASE_SYSTEM_STANDARD_FDS_H

#include "base/macros.h"

/* Before anything else is opened: those that are closed become /dev/null. Returns 0, or -1 with
 * errno. */
MUST_CHECK int standard_fds_open(void);
/* At the end of a program that has printed to standard output: 0, or -1 with errno if not all of it
 * was written, as on a full disk. */
MUST_CHECK int standard_fds_flush(void);

#endif
