/* SPDX-License-Identifier: Apache-2.0 */
/* health.h: asks embtier-nvme-health for the health of a drive, which needs rights that this
 * program need not have. All drives are asked at the same time, as one that does not answer must
 * not keep the user waiting for the others. Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_ENDURANCE_HEALTH_H
#define EMBTIER_TOOLS_CLI_ENDURANCE_HEALTH_H

#include <stdint.h>

#include "base/err.h"
#include "tools/cli/child/child_output.h"

struct json_t;

#define HEALTH_LIMIT_NS UINT64_C(10000000000) /* for all drives together */

/* @program: its path; @device: a name such as nvme0n1. UNSUPPORTED: @device is no NVMe drive. */
enum embtier_err health_start(const char *program, const char *device, struct child *ret_child,
                              struct err_msg *msg);
/* Waits until @until_ns of clock_monotonic, and frees the child. Returns its JSON
 * (tools/nvme/health_json.h). The message of errors but TIMEOUT is the child's own line. */
enum embtier_err health_finish(struct child *child, uint64_t until_ns, struct json_t **ret_health,
                               struct err_msg *msg);

/* Calls @take with the meaning of each critical warning in @health. */
void health_each_warning(const struct json_t *health,
                         void (*take)(const char *meaning, void *context), void *context);

#endif
