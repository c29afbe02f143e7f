/* SPDX-License-Identifier: Apache-2.0 */
/* life.h: how long drives last. Pure functions on numbers; NAN is "not known". Thread: any. */
#ifndef EMBTIER_TOOLS_CLI_ENDURANCE_LIFE_H
#define EMBTIER_TOOLS_CLI_ENDURANCE_LIFE_H

#include <stdbool.h>
#include <stddef.h>

#define LIFE_WINDOWS 3 /* an hour, a day, a week */

/* A drive's own figures. */
struct wear {
    double written_bytes; /* in its life; NAN: not reported */
    double used_percent;  /* of its life; NAN: not reported */
};

struct life_inputs {
    double rated_bytes;        /* of all drives together; NAN: not known */
    const struct wear *drives; /* of all drives */
    size_t drive_count;
    double history_bytes;             /* that the server knows to have been written to them */
    double daily_bytes[LIFE_WINDOWS]; /* to all drives, at the rate of each window */
};

struct life {
    double written_bytes; /* in the drives' life */
    bool is_counted;      /* by the drives; else it is a lower bound */
    double left_bytes;    /* NAN: not known */
    /* Bytes left are those of the rating, and those that the drives' own percentage leaves, whose
     * last digit is uncertain. Rates are those of the windows. The first is at the rate of the
     * longest window. */
    double years, least_years, most_years;
};

void life_compute(const struct life_inputs *inputs, struct life *ret_life);

#endif
