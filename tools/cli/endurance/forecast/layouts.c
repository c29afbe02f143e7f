/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/endurance/forecast/layouts.h"

#include <math.h>
#include <string.h>

#include "base/text/text_escape.h"
#include "tools/cli/number.h"

/* Bytes of a flush, with indexes and filters, for each byte of rows. */
#define FIRST_WRITES 1.02
#define GIVEN_LEAST  1.0
#define GIVEN_MOST   1000.0

/* docs/internals/placement/forecast.md says how they were measured. */
static const struct {
    const char *word;
    double rewritten;
} layout_facts[] = {
    [LAYOUT_LEVELED] = { "leveled", 2.3 },
    [LAYOUT_UNIVERSAL] = { "universal", 1.45 },
    [LAYOUT_BLOB] = { "blob", 1.2 },
};
_Static_assert(ARRAY_LEN(layout_facts) == LAYOUT_COUNT, "each has its figures");

enum config_layout layout_of_word(const char *word)
{
    enum config_layout layout = LAYOUT_LEVELED;

    while (layout < LAYOUT_COUNT && strcmp(layout_facts[layout].word, word) != 0)
        layout++;
    return layout;
}

const char *layout_word(enum config_layout layout)
{
    return layout_facts[layout].word;
}

double layout_rewritten(enum config_layout layout)
{
    return layout_facts[layout].rewritten;
}

enum embtier_err layouts_give(struct layouts *layouts, const char *text, struct err_msg *msg)
{
    const char *const equals = strchr(text, '=');
    char word[16] = "";
    enum config_layout layout;
    double number;

    if (equals && (size_t)(equals - text) < sizeof(word))
        memcpy(word, text, (size_t)(equals - text));
    layout = layout_of_word(word);
    if (layout == LAYOUT_COUNT || !number_is_double(equals + 1, &number) || number < GIVEN_LEAST ||
        number > GIVEN_MOST)
        return err_set(msg, EMBTIER_INVALID,
                       "--amplification %s: allowed: leveled, universal or blob, = and a number "
                       "from 1 to 1000, such as universal=2.5",
                       TEXT_SHOWN(text));
    layouts->given[layout] = number;
    return EMBTIER_OK;
}

double layouts_amplification(const struct layouts *layouts, enum config_layout from, double now,
                             enum config_layout to)
{
    const double first = fmin(now, FIRST_WRITES);

    if (to != from && layouts->given[to] > 0)
        return layouts->given[to];
    return first + (now - first) * layout_rewritten(to) / layout_rewritten(from);
}
