/* SPDX-License-Identifier: Apache-2.0 */
/* rates.h: rates from the differences of counters between two answers of a server.
 *
 * Each kind of answer has a time of its own: metrics the server's uptime, sessions their age,
 * tables the moment at which they came. So a slow answer makes no rate wrong. NAN: not known.
 * Thread: any. */
#ifndef EMBTIER_TOOLS_CLI_TOP_RATES_H
#define EMBTIER_TOOLS_CLI_TOP_RATES_H

#include <stddef.h>

#include "client/include/embtier.h"
#include "tools/cli/top/sample.h"

/* Returns the increase a second. NAN: @seconds are not above 0, a value is not known, or the
 * counter went back, as after a restart. */
double rate(double before, double now, double seconds);

struct rates {
    const struct sample *now;
    const struct sample *before; /* NULL: there are no rates yet, or the server was restarted */
    double metric_seconds;       /* between the two; NAN without @before */
    double table_seconds;        /* the same for tables */
};

/* Borrows both. @before may be NULL. */
struct rates rates_between(const struct sample *before, const struct sample *now);
/* @label_value: as for figures_value(). */
double rates_metric(const struct rates *rates, const char *name, const char *label_value);
/* Returns the earlier state of the same table or session. NULL: there was none. @index: the table's
 * place in the list. */
const struct embtier_table_info *
rates_table_before(const struct rates *rates, const struct embtier_table_info *table, size_t index);
const struct embtier_session *rates_session_before(const struct rates *rates,
                                                   const struct embtier_session *session);

#endif
