/* SPDX-License-Identifier: Apache-2.0 */
/* reading.h: what a server tells of itself at one moment, once or again and again.
 *
 * An older server does not know all requests, and closes the connection after one that it does not
 * know. It is not asked again for that, nor for what came later. Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_STATUS_READING_H
#define EMBTIER_TOOLS_CLI_STATUS_READING_H

#include <stdbool.h>

#include "base/macros.h"
#include "client/include/embtier.h"

struct cli;

/* Parts beside the metrics, in the order in which servers came to know them. */
enum reading_part {
    READING_TABLES = 1 << 0,
    READING_ACCOUNTS = 1 << 1,
    READING_PLAN = 1 << 2,
};

struct reading {
    struct embtier_status *status;
    struct embtier_table_list *tables;     /* NULL: not asked for, or not known */
    struct embtier_account_list *accounts; /* the same */
    struct embtier_plan_info plan;         /* if has_plan */
    bool has_plan;
};

/* Asks for the metrics and *@parts, bits of enum reading_part. Removes from *@parts what the server
 * does not know. Then it may have closed the connection: call embtier_reconnect() before the next
 * request. */
MUST_CHECK enum embtier_err reading_get(struct embtier *server, unsigned *parts,
                                        struct reading *ret_reading);
void reading_clear(struct reading *reading);

/* Shows @now. @before: NULL the first time; @seconds: between the two, 0 if the server was
 * restarted. Returns an exit code. */
typedef int reading_show_fn(const struct cli *cli, const void *context, const struct reading *now,
                            const struct reading *before, double seconds);

/* Reads the metrics and @parts, bits of enum reading_part, and shows them. @seconds: 0, once; else
 * again and again at this interval, on a fresh screen if the output is a terminal. Returns an exit
 * code. */
int readings_show(struct cli *cli, unsigned parts, double seconds, reading_show_fn *show,
                  const void *context);

#endif
