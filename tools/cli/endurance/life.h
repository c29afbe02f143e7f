/* SPDX-License-Identifier: Apache-2.0 */
/* life.h: how long drives last. Each drive has a life of its own, as the work is not spread evenly:
 * the first that wears out ends that of all. Pure functions on numbers; NAN is "not known". Thread:
 * any. */
#ifndef EMBTIER_TOOLS_CLI_ENDURANCE_LIFE_H
#define EMBTIER_TOOLS_CLI_ENDURANCE_LIFE_H

#include <stdbool.h>
#include <stddef.h>

#define LIFE_WINDOWS 3 /* an hour, a day, a week */

/* One drive's figures. */
struct life_inputs {
    double rated_bytes;
    double written_bytes;             /* in its life, as it reports itself */
    double used_percent;              /* of its life, as it reports itself */
    double history_bytes;             /* that the server knows to have been written to it */
    double daily_bytes[LIFE_WINDOWS]; /* at the rate of each window */
};

struct life {
    double written_bytes; /* in the drive's life */
    bool is_counted;      /* by the drive; else it is a lower bound */
    double left_bytes;
    /* Bytes left are those of the rating, and those that the drive's own percentage leaves, whose
     * last digit is uncertain. Rates are those of the windows. The first is at the rate of the
     * longest window. */
    double years, least_years, most_years;
};

void life_compute(const struct life_inputs *inputs, struct life *ret_life);

/* Returns the share of @rated_bytes of the drive at @index, by capacity; all have the same if a
 * capacity is not known. */
double life_share(double rated_bytes, const double *capacities, size_t count, size_t index);
/* Returns the index of the life that ends first; those that are known come before others. @count is
 * above 0. */
size_t life_first(const struct life *lives, size_t count);

#endif
