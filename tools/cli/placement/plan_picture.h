/* SPDX-License-Identifier: Apache-2.0 */
/* plan_picture.h: a plan as a picture: each table's bandwidth against its size, coloured by memory
 * (MTrainS, figures 1 and 7). */
#ifndef EMBTIER_TOOLS_CLI_PLACEMENT_PLAN_PICTURE_H
#define EMBTIER_TOOLS_CLI_PLACEMENT_PLAN_PICTURE_H

#include "placement/plan/plan.h"

/* Writes an SVG file, over one that is there. */
MUST_CHECK enum embtier_err plan_picture_write(const struct plan *plan, const char *path,
                                               struct err_msg *msg);

#endif
