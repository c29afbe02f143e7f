/* SPDX-License-Identifier: Apache-2.0 */
/* latencies.h: how long requests of one operation took between two answers of the server, over all
 * transports. Thread: any. */
#ifndef EMBTIER_TOOLS_CLI_TOP_LATENCIES_H
#define EMBTIER_TOOLS_CLI_TOP_LATENCIES_H

#include "tools/cli/top/rates.h"

/* Returns the time that the share @quantile took no longer than, in seconds. NAN: there was no such
 * request, or the server does not tell. */
double latencies_quantile(const struct rates *rates, const char *operation, double quantile);

#endif
