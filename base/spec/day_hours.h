/* SPDX-License-Identifier: Apache-2.0 */
/* day_hours.h: hours of the day, in local time, such as "22:00-06:00,12:30-13:00". */
#ifndef EMBTIER_BASE_SPEC_DAY_HOURS_H
#define EMBTIER_BASE_SPEC_DAY_HOURS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define DAY_HOURS_MAX        8
#define DAY_HOURS_MINUTES    (24 * 60)
#define DAY_HOURS_TEXT_BYTES (DAY_HOURS_MAX * sizeof("00:00-00:00"))

/* A range ends before its end minute. One that ends before it begins goes on past midnight. */
struct day_hours {
    struct day_hours_range {
        uint16_t begin, end; /* minutes since midnight */
    } ranges[DAY_HOURS_MAX];
    uint32_t count; /* 0: all day */
};

/* "" is all day. INVALID: the message says what is allowed. */
MUST_CHECK enum embtier_err day_hours_parse(const char *text, struct day_hours *ret_hours,
                                            struct err_msg *msg);
/* Writes the hours as day_hours_parse() takes them. */
void day_hours_print(const struct day_hours *hours, char ret_text[DAY_HOURS_TEXT_BYTES]);
bool day_hours_has(const struct day_hours *hours, uint32_t minute);
/* Returns the minutes from @minute until the hours begin; 0: they have it. */
uint32_t day_hours_wait(const struct day_hours *hours, uint32_t minute);
/* Returns the present minute of the local day. */
uint32_t day_hours_now(void);

#endif
