/* SPDX-License-Identifier: Apache-2.0 */
/* status_json.h: the server's state as JSON, in the form of `embtier -o json stats`. It adds
 * `ready`, `reasons` and `tables`, and leaves out users and clients: readers over HTTP are nobody.
 * Thread: any. */
#ifndef EMBTIER_DAEMON_HTTP_STATUS_JSON_H
#define EMBTIER_DAEMON_HTTP_STATUS_JSON_H

#include "base/macros.h"

struct snapshot;
struct table_top;

/* @top may be NULL. Returns malloced text; NULL when out of memory. */
MUST_CHECK char *status_json(const struct snapshot *snapshot, const struct table_top *top);

#endif
