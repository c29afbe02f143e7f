/* SPDX-License-Identifier: Apache-2.0 */
/* machine_file.h: reads the description of a machine
 * (docs/internals/placement/planning.md). Thread: any. */
#ifndef EMBTIER_PLACEMENT_MACHINE_MACHINE_FILE_H
#define EMBTIER_PLACEMENT_MACHINE_MACHINE_FILE_H

#include "placement/machine/machine.h"

/* CONFIG: a mistake; @msg has file, line, key, the fault and the values allowed. Or the error of a
 * file that cannot be read. */
MUST_CHECK enum embtier_err machine_file_load(const char *path, struct machine *ret_machine,
                                              struct err_msg *msg);

#endif
