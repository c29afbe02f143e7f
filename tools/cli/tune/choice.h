/* SPDX-License-Identifier: Apache-2.0 */
/* choice.h: the layout to recommend, from what each one cost. Pure values. */
#ifndef EMBTIER_TOOLS_CLI_TUNE_CHOICE_H
#define EMBTIER_TOOLS_CLI_TUNE_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "config/config.h"

/* X(NAME, word) */
#define TUNE_PREFERENCES(X)                                                                        \
    X(BALANCE, "balance")                                                                          \
    X(WRITES, "writes")                                                                            \
    X(READS, "reads")                                                                              \
    X(SPACE, "space")

enum tune_preference {
#define X(name, word) TUNE_##name,
    TUNE_PREFERENCES(X)
#undef X
        TUNE_PREFERENCE_COUNT
};

/* A figure of all turns, and its range over them. */
struct tune_range {
    double value, least, most;
};

struct tune_figures {
    bool is_tried;
    uint32_t turns;
    struct tune_range amplification; /* bytes written for each byte of rows handed over */
    struct tune_range reads_per_s;
    struct tune_range space; /* bytes of files for each byte of rows; the most while files merge */
    double update_bytes;     /* written for each update of a client */
};

/* With TUNE_BALANCE, layouts that read less than this part of what the best one does are left out.
 */
#define TUNE_READS_PART 0.9
/* The least of a layout's turns writes at least this part of all of them together. */
#define TUNE_EVEN_PART 0.5
/* A layout is better only if it is so by this part. Else the earlier one stays. */
#define TUNE_BETTER_PART 0.05

/* Says whether most updates meet in the write buffers, so that no layout has work. */
bool tune_is_idle(const struct tune_figures *figures);
/* Says whether turns of one layout wrote much less than it did on average: rows of these turns were
 * still in write buffers. @ret_why (may be NULL) names it. False if the layouts are idle. */
bool tune_uneven(const struct tune_figures *figures, struct err_msg *ret_why);
/* Returns the best of LAYOUT_COUNT layouts, of which one at least was tried. @ret_reason says why.
 */
enum config_layout tune_choose(const struct tune_figures *figures, enum tune_preference preference,
                               struct err_msg *ret_reason);

#endif
