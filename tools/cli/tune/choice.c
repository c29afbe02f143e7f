/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/tune/choice.h"

static double best_reads(const struct tune_figures *figures)
{
    double best = 0;

    for (uint32_t i = 0; i < LAYOUT_COUNT; i++)
        if (figures[i].is_tried)
            best = MAX(best, figures[i].reads_per_s.value);
    return best;
}

/* The figure that counts, of which less is better. */
static double cost(const struct tune_figures *figures, enum tune_preference preference)
{
    switch (preference) {
    case TUNE_READS:
        return -figures->reads_per_s.value;
    case TUNE_SPACE:
        return figures->space.value;
    default:
        return figures->amplification.value;
    }
}

static bool is_better(double cost, double than)
{
    return cost < than - TUNE_BETTER_PART * (than < 0 ? -than : than);
}

enum config_layout tune_choose(const struct tune_figures *figures, enum tune_preference preference,
                               struct err_msg *ret_reason)
{
    const double reads_least =
        preference == TUNE_BALANCE ? TUNE_READS_PART * best_reads(figures) : 0;
    uint32_t best = LAYOUT_COUNT, slow = 0;

    for (uint32_t i = 0; i < LAYOUT_COUNT; i++) {
        if (!figures[i].is_tried)
            continue;
        if (figures[i].reads_per_s.value < reads_least)
            slow++;
        else if (best == LAYOUT_COUNT ||
                 is_better(cost(&figures[i], preference), cost(&figures[best], preference)))
            best = i;
    }
    if (preference == TUNE_READS)
        err_write(ret_reason, "it reads the most rows a second: %.0f",
                  figures[best].reads_per_s.value);
    else if (preference == TUNE_SPACE)
        err_write(ret_reason, "it takes the least space: %.2f bytes for each byte of rows",
                  figures[best].space.value);
    else
        err_write(ret_reason, "it writes the least: %.1f bytes for each byte of rows%s",
                  figures[best].amplification.value,
                  slow > 0 ? ", of those that read at least 0.9 of the best" : "");
    return (enum config_layout)best;
}
