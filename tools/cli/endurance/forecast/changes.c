/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/endurance/forecast/changes.h"

#include <stdio.h>
#include <string.h>

#include "base/text/bytes.h"
#include "base/text/text_escape.h"
#include "tools/cli/endurance/forecast/layouts.h"
#include "tools/cli/number.h"

#define YEAR_DAYS         365.0
#define SLOWER_TIER       "pmem"
#define SLOWER_TIMES      4.0
#define DRIVE_BYTES_LEAST 1e9
#define DRIVE_BYTES_MOST  1e18
#define DRIVE_DWPD_MOST   1000.0
#define DRIVE_YEARS_MOST  100.0

static enum embtier_err add(struct changes *changes, const struct change *change,
                            struct err_msg *msg)
{
    if (changes->count == CHANGES_MAX)
        return err_set(msg, EMBTIER_TOO_LARGE, "too many alternatives; allowed: at most %d",
                       CHANGES_MAX);
    changes->items[changes->count++] = *change;
    return EMBTIER_OK;
}

/* ---- Tiers ---- */

static struct change tier_change(const char *tier, double bytes)
{
    struct change change = { .kind = CHANGE_TIER, .tier_bytes = bytes };
    struct number_text text;

    snprintf(change.tier, sizeof(change.tier), "%s", tier);
    snprintf(change.name, sizeof(change.name), "%s of %s", tier, number_bytes(&text, bytes));
    return change;
}

enum embtier_err changes_add_tier(struct changes *changes, const char *text, struct err_msg *msg)
{
    const char *const equals = strchr(text, '=');
    const size_t length = equals ? (size_t)(equals - text) : 0;
    char tier[TIER_NAME_MAX + 1] = "";
    struct change change;
    uint64_t bytes;

    if (length == 0 || length > TIER_NAME_MAX || !text_is_plain(text, length) ||
        parse_bytes(equals + 1, &bytes) != EMBTIER_OK || bytes == 0)
        return err_set(msg, EMBTIER_INVALID,
                       "--tier %s: allowed: the name of a tier, = and its bytes, such as "
                       "dram=64GiB; a new name is a tier below the others",
                       TEXT_SHOWN(text));
    memcpy(tier, text, length);
    change = tier_change(tier, (double)bytes);
    return add(changes, &change, msg);
}

/* ---- Layouts, first values ---- */

static struct change layout_change(enum config_layout layout)
{
    struct change change = { .kind = CHANGE_LAYOUT, .layout = layout };

    snprintf(change.name, sizeof(change.name), "layout %s", layout_word(layout));
    return change;
}

enum embtier_err changes_add_layout(struct changes *changes, const char *text, struct err_msg *msg)
{
    const enum config_layout layout = layout_of_word(text);
    struct change change;

    if (layout == LAYOUT_COUNT)
        return err_set(msg, EMBTIER_INVALID, "--layout %s: allowed: leveled, universal, blob",
                       TEXT_SHOWN(text));
    change = layout_change(layout);
    return add(changes, &change, msg);
}

static const struct change eager_change = { .kind = CHANGE_EAGER,
                                            .name = "no deferred initialization" };

enum embtier_err changes_add_eager(struct changes *changes, struct err_msg *msg)
{
    return add(changes, &eager_change, msg);
}

/* ---- Drives ---- */

struct drive_words {
    char name[DRIVE_NAME_MAX + 1];
    double bytes, rated_bytes, dwpd, years;
};

static enum embtier_err take_name(struct drive_words *words, const char *value, struct err_msg *msg)
{
    const size_t length = strlen(value);

    if (length == 0 || length > DRIVE_NAME_MAX || !text_is_plain(value, length))
        return err_set(msg, EMBTIER_INVALID,
                       "--drive: name %s: allowed: 1 to %d visible characters", TEXT_SHOWN(value),
                       DRIVE_NAME_MAX);
    snprintf(words->name, sizeof(words->name), "%s", value);
    return EMBTIER_OK;
}

static enum embtier_err take_bytes(const char *key, const char *value, double *ret_bytes,
                                   struct err_msg *msg)
{
    uint64_t bytes;

    if (parse_bytes(value, &bytes) != EMBTIER_OK || (double)bytes < DRIVE_BYTES_LEAST ||
        (double)bytes > DRIVE_BYTES_MOST)
        return err_set(msg, EMBTIER_INVALID, "--drive: %s=%s: allowed: 1GB to 1000000TB", key,
                       TEXT_SHOWN(value));
    *ret_bytes = (double)bytes;
    return EMBTIER_OK;
}

static enum embtier_err take_number(const char *key, const char *value, double most,
                                    double *ret_number, struct err_msg *msg)
{
    double number;

    if (!number_is_double(value, &number) || !(number > 0) || number > most)
        return err_set(msg, EMBTIER_INVALID, "--drive: %s=%s: allowed: a number above 0, up to %g",
                       key, TEXT_SHOWN(value), most);
    *ret_number = number;
    return EMBTIER_OK;
}

static enum embtier_err take_word(struct drive_words *words, const char *key, const char *value,
                                  struct err_msg *msg)
{
    if (strcmp(key, "name") == 0)
        return take_name(words, value, msg);
    if (strcmp(key, "bytes") == 0)
        return take_bytes(key, value, &words->bytes, msg);
    if (strcmp(key, "rated") == 0)
        return take_bytes(key, value, &words->rated_bytes, msg);
    if (strcmp(key, "dwpd") == 0)
        return take_number(key, value, DRIVE_DWPD_MOST, &words->dwpd, msg);
    if (strcmp(key, "years") == 0)
        return take_number(key, value, DRIVE_YEARS_MOST, &words->years, msg);
    return err_set(msg, EMBTIER_INVALID,
                   "--drive: there is no '%s'; allowed: name, bytes, dwpd, rated, years",
                   TEXT_SHOWN(key));
}

static enum embtier_err take_words(char *text, struct drive_words *words, struct err_msg *msg)
{
    char *rest;

    for (char *word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        char *const equals = strchr(word, '=');

        if (!equals)
            return err_set(msg, EMBTIER_INVALID,
                           "--drive: '%s' has no value after a =", TEXT_SHOWN(word));
        *equals = '\0';
        TRY(take_word(words, word, equals + 1, msg));
    }
    return EMBTIER_OK;
}

enum embtier_err changes_add_drive(struct changes *changes, const char *text, struct err_msg *msg)
{
    struct change change = { .kind = CHANGE_DRIVE };
    struct drive_words words = { .years = DRIVE_YEARS_USUAL };
    char copy[256];

    if ((size_t)snprintf(copy, sizeof(copy), "%s", text) >= sizeof(copy))
        return err_set(msg, EMBTIER_INVALID, "--drive: the text is too long");
    TRY(take_words(copy, &words, msg));
    if (words.name[0] == '\0' || words.bytes == 0)
        return err_set(msg, EMBTIER_INVALID,
                       "--drive %s: name or bytes are missing; such as "
                       "name=new,bytes=3.84TB,dwpd=1,years=5",
                       TEXT_SHOWN(text));
    if ((words.dwpd > 0) == (words.rated_bytes > 0))
        return err_set(msg, EMBTIER_INVALID,
                       "--drive %s: give its rating as dwpd=NUMBER (drive writes a day) or as "
                       "rated=BYTES (TBW), one of them; a data sheet has it",
                       TEXT_SHOWN(text));
    if (words.dwpd > 0)
        words.rated_bytes = words.dwpd * words.bytes * words.years * YEAR_DAYS;
    change.drive = (struct drive){ words.bytes, words.rated_bytes, words.years };
    snprintf(change.name, sizeof(change.name), "drive %s", words.name);
    return add(changes, &change, msg);
}

/* ---- Without options ---- */

void changes_choose(struct changes *changes, const struct change_tiers *tiers,
                    enum config_layout layout)
{
    *changes = (struct changes){ .count = 0 };
    for (size_t i = 0; i < tiers->count; i++)
        changes->items[changes->count++] = tier_change(tiers->names[i], 2 * tiers->bytes[i]);
    if (tiers->count == 1 && strcmp(tiers->names[0], SLOWER_TIER) != 0)
        changes->items[changes->count++] = tier_change(SLOWER_TIER, SLOWER_TIMES * tiers->bytes[0]);
    for (enum config_layout other = LAYOUT_LEVELED; other < LAYOUT_COUNT; other++)
        if (other != layout)
            changes->items[changes->count++] = layout_change(other);
    changes->items[changes->count++] = eager_change;
}
