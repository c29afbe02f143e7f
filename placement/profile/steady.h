/* SPDX-License-Identifier: Apache-2.0 */
/* steady.h: the profile of the same lookups as a server sees them that has long run.
 *
 * A trace begins in the middle of a server's life. The first lookup of a row in it is not the row's
 * first one ever: its last one came before the trace. So its reuse time is not known, only that it
 * is longer than the trace was old. Such times are called censored. The distribution of all reuse
 * times is estimated from both kinds: Kaplan and Meier, "Nonparametric Estimation from Incomplete
 * Observations", J. American Statistical Association 53, 1958, section 2. First lookups then get
 * the times that are longer than the trace was old, in proportion.
 *
 * A trace tells only the mean of times longer than itself. If lookups go on for ever, the times
 * of a table's lookups add up to its rows times the length of the trace: Kac, "On the Notion of
 * Recurrence in Discrete Stochastic Processes", Bulletin AMS 53, 1947, theorem 2. So a table with a
 * fixed number of rows has the mean of these times, which are spread exponentially beyond the
 * trace. A cache that holds all rows of its tables then misses none. In an unbounded table such
 * lookups still count as first ones.
 *
 * The access CDF becomes that of coming lookups (access_cdf_make_coming()).
 *
 * Reuse times only get added, each to the segment of its lookup. So hit rates still fall when a
 * cache gets smaller or is shared by more tables. Thread: one. */
#ifndef EMBTIER_PLACEMENT_PROFILE_STEADY_H
#define EMBTIER_PLACEMENT_PROFILE_STEADY_H

#include "placement/profile/measured_profile.h"

/* Changes @measured; save its file before. Predictions are then those of a cache
 * that has long been full. NO_MEMORY: it is of no use any more. */
MUST_CHECK enum embtier_err measured_profile_make_steady(struct measured_profile *measured,
                                                         struct err_msg *msg);

#endif
