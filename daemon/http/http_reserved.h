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
/* The thread, a snapshot and the last hour. */
#define HTTP_FIXED_BYTES (2 * MIB)
/* The figures of all tables that there may be, as they were and as they are (table_top.c). */
#define HTTP_TABLES_BYTES (8 * MIB)

static inline uint64_t http_reserved_bytes(const struct config *config)
{
    const uint64_t tables_bytes = config->http.tables > 0 ? HTTP_TABLES_BYTES : 0;

    return config->http.listen
               ? HTTP_FIXED_BYTES + tables_bytes +
                     config->http.max_connections * (HTTP_CONNECTION_BYTES + PAGE_BYTES_MAX)
               : 0;
}

#endif
