/* SPDX-License-Identifier: Apache-2.0 */
/* http_reserved.h: memory that HTTP takes in addition to the budgets, for the sum in
 * daemon/budget/budget.h. */
#ifndef EMBTIER_DAEMON_HTTP_HTTP_RESERVED_H
#define EMBTIER_DAEMON_HTTP_HTTP_RESERVED_H

#include "base/macros.h"
#include "config/config.h"
#include "daemon/http/page.h"

/* libmicrohttpd's for each connection: what it receives and sends. A request that is longer is
 * refused. */
#define HTTP_CONNECTION_BYTES (32 * KIB)
/* The thread, a snapshot, the last hour, and the figures of 10,000 tables as they were. */
#define HTTP_FIXED_BYTES (2 * MIB)

static inline uint64_t http_reserved_bytes(const struct config *config)
{
    return config->http.listen ? HTTP_FIXED_BYTES + config->http.max_connections *
                                                        (HTTP_CONNECTION_BYTES + PAGE_BYTES_MAX)
                               : 0;
}

#endif
