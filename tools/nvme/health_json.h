/* SPDX-License-Identifier: Apache-2.0 */
/* health_json.h: a drive's health as JSON; null is "not reported". Thread: any. */
#ifndef EMBTIER_TOOLS_NVME_HEALTH_JSON_H
#define EMBTIER_TOOLS_NVME_HEALTH_JSON_H

#include "tools/nvme/health_page.h"

struct json_t;

/* @media_bytes: written to the medium; 0: not known. Returns NULL when out of memory. */
struct json_t *health_json(const char *device, const struct health *health, double media_bytes);

#endif
