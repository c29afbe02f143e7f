/* SPDX-License-Identifier: Apache-2.0 */
/* knob_check.h: has another embtierd check a configuration (`embtierd --check`), as
 * `embtier config check` does. The checks of a start inspect files, make threads of RocksDB and
 * take sockets, which a process that serves cannot do again. */
#ifndef EMBTIER_DAEMON_JOBS_KNOBS_KNOB_CHECK_H
#define EMBTIER_DAEMON_JOBS_KNOBS_KNOB_CHECK_H

#include "base/err.h"

/* Checks the file that @fd reads. CONFIG: a start would refuse it; the message calls the file
 * @path. Any other error: the program @checker could not be run. Waits for it. */
MUST_CHECK enum embtier_err knob_check(const char *checker, int fd, const char *path,
                                       struct err_msg *msg);

#endif
