/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/tune/choice.h"

#include "tools/trial/trial_wire.h"

/* Below it no layout has work. */
#define IDLE_AMPLIFICATION 0.5

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

/* Says whether no layout that counts costs less than @best. */
static bool is_least(const struct tune_figures *figures, enum tune_preference preference,
                     double reads_least, uint32_t best)
{
    for (uint32_t i = 0; i < LAYOUT_COUNT; i++)
        if (figures[i].is_tried && figures[i].reads_per_s.value >= reads_least &&
            cost(&figures[i], preference) < cost(&figures[best], preference))
            return false;
    return true;
}

static void tell_least(const struct tune_figures *best, enum tune_preference preference,
                       uint32_t slow, struct err_msg *ret_reason)
{
    if (preference == TUNE_READS)
        err_write(ret_reason, "it reads the most rows a second: %.0f", best->reads_per_s.value);
    else if (preference == TUNE_SPACE)
        err_write(ret_reason, "it takes the least space: %.2f bytes for each byte of rows",
                  best->space.value);
    else
        err_write(ret_reason, "it writes the least: %.1f bytes for each byte of rows%s",
                  best->amplification.value,
                  slow > 0 ? ", of those that read at least 0.9 of the best" : "");
}

static void tell_near(const struct tune_figures *best, enum tune_preference preference,
                      uint32_t slow, struct err_msg *ret_reason)
{
    const char *const other =
        slow > 0 ? "no other that reads at least 0.9 of the best" : "no other";

    if (preference == TUNE_READS)
        err_write(ret_reason, "it reads %.0f rows a second, and %s is better by 5 %%",
                  best->reads_per_s.value, other);
    else if (preference == TUNE_SPACE)
        err_write(ret_reason, "it takes %.2f bytes for each byte of rows, and %s is better by 5 %%",
                  best->space.value, other);
    else
        err_write(ret_reason,
                  "it writes %.1f bytes for each byte of rows, and %s is better by 5 %%",
                  best->amplification.value, other);
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
    if (is_least(figures, preference, reads_least, best))
        tell_least(&figures[best], preference, slow, ret_reason);
    else
        tell_near(&figures[best], preference, slow, ret_reason);
    return (enum config_layout)best;
}

bool tune_is_idle(const struct tune_figures *figures)
{
    double most = 0;

    for (uint32_t i = 0; i < LAYOUT_COUNT; i++)
        most = MAX(most, figures[i].amplification.value);
    return most < IDLE_AMPLIFICATION;
}

bool tune_uneven(const struct tune_figures *figures, struct err_msg *ret_why)
{
    static const char *const words[] = TRIAL_LAYOUT_WORDS;

    for (uint32_t i = 0; i < LAYOUT_COUNT && !tune_is_idle(figures); i++) {
        const struct tune_range *const range = &figures[i].amplification;

        if (!figures[i].is_tried || range->least >= TUNE_EVEN_PART * range->value)
            continue;
        err_write(ret_why,
                  "turns of %s wrote %.1f to %.1f bytes for each byte of rows, as rows of some "
                  "turns were still in write buffers",
                  words[i], range->least, range->most);
        return true;
    }
    return false;
}
