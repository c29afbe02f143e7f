/* SPDX-License-Identifier: Apache-2.0 */
/* sample.h: the server's counts at one time. They go on since its start, so the difference of two
 * samples is what happened between them. Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_ENDURANCE_SAMPLE_H
#define EMBTIER_TOOLS_CLI_ENDURANCE_SAMPLE_H

#include "base/err.h"
#include "client/include/embtier.h"

struct cli;

#define ENDURANCE_RATES_S 3600 /* a shorter time since the start says nothing about a day */

/* Both NULL: the server's start. */
struct endurance_sample {
    struct embtier_status *status;
    struct embtier_table_list *tables;
};

/* Asks the connected server. On an error, it has the message. */
MUST_CHECK enum embtier_err endurance_sample_take(struct cli *cli,
                                                  struct endurance_sample *ret_sample);
void endurance_sample_free(struct endurance_sample *sample);

/* Returns a figure of the status; 0: it has none, or @status is NULL. */
double endurance_figure(const struct embtier_status *status, const char *name, const char *label);
/* NULL: the sample does not have the table. */
const struct embtier_table_info *endurance_sample_table(const struct endurance_sample *sample,
                                                        uint32_t table_id);

/* AGAIN: @now is of another start of the server than @before, as counts only grow in between. */
MUST_CHECK enum embtier_err endurance_sample_check(const struct endurance_sample *before,
                                                   const struct endurance_sample *now,
                                                   struct err_msg *msg);

/* Waits for an interval, with a progress bar. */
void endurance_wait(double seconds);

#endif
