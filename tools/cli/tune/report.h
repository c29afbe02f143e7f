/* SPDX-License-Identifier: Apache-2.0 */
/* report.h: the result of a trial, for people and for programs. */
#ifndef EMBTIER_TOOLS_CLI_TUNE_REPORT_H
#define EMBTIER_TOOLS_CLI_TUNE_REPORT_H

#include "tools/cli/cli.h"
#include "tools/cli/tune/choice.h"

struct tune_report {
    const struct json_t *trial, *result; /* as sent to the trial, and its last line */
    enum tune_preference preference;
    enum config_layout present; /* of the configuration */
    bool buffers_reads;         /* it has no direct I/O */
};

/* Works out the figures of each layout. PROTOCOL: the result is none. */
MUST_CHECK enum embtier_err tune_figures(const struct json_t *result,
                                         struct tune_figures ret_figures[LAYOUT_COUNT],
                                         struct err_msg *msg);
/* Returns an exit code. */
int tune_report_print(const struct cli *cli, const struct tune_report *report);

#endif
