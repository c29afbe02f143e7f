/* SPDX-License-Identifier: Apache-2.0 */
#include "base/spec/day_hours.h"

#include <stdio.h>
#include <time.h>

#include "base/macros.h"
#include "base/text/text_escape.h"

/* Takes two digits below @limit off the text. */
static bool take_number(const char **text, uint32_t limit, uint32_t *ret_number)
{
    const char *const at = *text;

    if (at[0] < '0' || at[0] > '9' || at[1] < '0' || at[1] > '9')
        return false;
    *ret_number = (uint32_t)(at[0] - '0') * 10 + (uint32_t)(at[1] - '0');
    *text += 2;
    return *ret_number < limit;
}

static bool take_char(const char **text, char wanted)
{
    if (**text != wanted)
        return false;
    ++*text;
    return true;
}

/* "24:00" is the end of the day. */
static bool take_minute(const char **text, bool may_be_end, uint16_t *ret_minute)
{
    uint32_t hour, minute;

    if (!take_number(text, 25, &hour) || !take_char(text, ':') || !take_number(text, 60, &minute))
        return false;
    if (hour == 24 && (minute > 0 || !may_be_end))
        return false;
    *ret_minute = (uint16_t)(hour * 60 + minute);
    return true;
}

static bool take_range(const char **text, struct day_hours_range *ret_range)
{
    return take_minute(text, false, &ret_range->begin) && take_char(text, '-') &&
           take_minute(text, true, &ret_range->end) && ret_range->begin != ret_range->end;
}

enum embtier_err day_hours_parse(const char *text, struct day_hours *ret_hours, struct err_msg *msg)
{
    struct day_hours hours = { .count = 0 };
    const char *at = text;

    while (*at != '\0') {
        if (hours.count == DAY_HOURS_MAX)
            return err_set(msg, EMBTIER_INVALID, "%s: allowed: at most %d ranges", TEXT_SHOWN(text),
                           DAY_HOURS_MAX);
        if (!take_range(&at, &hours.ranges[hours.count]) || (*at != '\0' && *at != ',') ||
            (*at == ',' && at[1] == '\0'))
            return err_set(msg, EMBTIER_INVALID,
                           "%s: allowed: ranges of local time, such as 22:00-06:00 or "
                           "12:00-13:00,20:00-24:00",
                           TEXT_SHOWN(text));
        hours.count++;
        (void)take_char(&at, ',');
    }
    *ret_hours = hours;
    return EMBTIER_OK;
}

void day_hours_print(const struct day_hours *hours, char ret_text[DAY_HOURS_TEXT_BYTES])
{
    size_t at = 0;

    ret_text[0] = '\0';
    for (uint32_t i = 0; i < hours->count; i++) {
        const struct day_hours_range *const range = &hours->ranges[i];

        at += (size_t)snprintf(ret_text + at, DAY_HOURS_TEXT_BYTES - at, "%s%02u:%02u-%02u:%02u",
                               i > 0 ? "," : "", range->begin / 60u, range->begin % 60u,
                               range->end / 60u, range->end % 60u);
    }
}

/* Returns the minutes from @from until @to, within a day. */
static uint32_t minutes_until(uint32_t from, uint32_t to)
{
    return (to + DAY_HOURS_MINUTES - from) % DAY_HOURS_MINUTES;
}

static bool range_has(const struct day_hours_range *range, uint32_t minute)
{
    return minutes_until(range->begin, minute) < minutes_until(range->begin, range->end) ||
           minutes_until(range->begin, range->end) == 0;
}

bool day_hours_has(const struct day_hours *hours, uint32_t minute)
{
    for (uint32_t i = 0; i < hours->count; i++)
        if (range_has(&hours->ranges[i], minute))
            return true;
    return hours->count == 0;
}

uint32_t day_hours_wait(const struct day_hours *hours, uint32_t minute)
{
    uint32_t least = DAY_HOURS_MINUTES;

    if (day_hours_has(hours, minute))
        return 0;
    for (uint32_t i = 0; i < hours->count; i++)
        least = MIN(least, minutes_until(minute, hours->ranges[i].begin));
    return least;
}

uint32_t day_hours_now(void)
{
    const time_t now = time(NULL);
    struct tm local = { 0 };

    (void)localtime_r(&now, &local);
    return (uint32_t)(local.tm_hour * 60 + local.tm_min);
}
