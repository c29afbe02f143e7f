/* SPDX-License-Identifier: Apache-2.0 */
/* figures.h: finds metrics in a server's status by name. Thread: any. */
#ifndef EMBTIER_TOOLS_CLI_STATUS_FIGURES_H
#define EMBTIER_TOOLS_CLI_STATUS_FIGURES_H

#include "client/include/embtier.h"

/* Returns the metric, or NULL. @status may be NULL. */
const struct embtier_metric *figures_find(const struct embtier_status *status, const char *name,
                                          const char *label_value);
/* Returns its value. @label_value NULL: the sum of all of its values. NAN: there is none. */
double figures_value(const struct embtier_status *status, const char *name,
                     const char *label_value);

#endif
