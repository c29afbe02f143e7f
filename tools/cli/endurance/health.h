/* SPDX-License-Identifier: Apache-2.0 */
/* health.h: asks embtier-nvme-health for the health of a drive, which needs rights that this
 * program need not have. The child has ten seconds. Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_ENDURANCE_HEALTH_H
#define EMBTIER_TOOLS_CLI_ENDURANCE_HEALTH_H

#include "base/err.h"

struct json_t;

/* @program: its path; @device: a name such as nvme0n1. Returns its JSON (tools/nvme/health_json.h).
 * UNSUPPORTED: @device is no NVMe drive. The message of other errors is the child's own line. */
MUST_CHECK enum embtier_err health_ask(const char *program, const char *device,
                                       struct json_t **ret_health, struct err_msg *msg);

/* Calls @take with the meaning of each critical warning in @health. */
void health_each_warning(const struct json_t *health,
                         void (*take)(const char *meaning, void *context), void *context);

#endif
