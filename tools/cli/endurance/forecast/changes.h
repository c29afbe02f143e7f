/* SPDX-License-Identifier: Apache-2.0 */
/* changes.h: what could be otherwise: a tier's size, the layout, the drives, first values. Thread:
 * one. */
#ifndef EMBTIER_TOOLS_CLI_ENDURANCE_FORECAST_CHANGES_H
#define EMBTIER_TOOLS_CLI_ENDURANCE_FORECAST_CHANGES_H

#include <stddef.h>

#include "base/err.h"
#include "base/spec/tier_spec.h"
#include "config/config.h"

#define CHANGES_MAX       32
#define DRIVE_NAME_MAX    40
#define DRIVE_YEARS_USUAL 5.0

struct drive {
    double capacity_bytes;
    double rated_bytes; /* to be written in its life; 0: not known */
    double rated_years;
};

enum change_kind {
    CHANGE_NONE, /* the server as it is */
    CHANGE_TIER,
    CHANGE_LAYOUT,
    CHANGE_EAGER, /* tables are made with all their rows */
    CHANGE_DRIVE
};

struct change {
    enum change_kind kind;
    char name[80]; /* for people */
    char tier[TIER_NAME_MAX + 1];
    double tier_bytes;
    enum config_layout layout;
    struct drive drive;
};

struct changes {
    struct change items[CHANGES_MAX];
    size_t count;
};

/* Add one, as an option's argument names it. INVALID: the message says what is allowed. */
MUST_CHECK enum embtier_err changes_add_tier(struct changes *changes, const char *text,
                                             struct err_msg *msg); /* "dram=64GiB" */
MUST_CHECK enum embtier_err changes_add_layout(struct changes *changes, const char *text,
                                               struct err_msg *msg);
/* "name=p5800x,bytes=1.6TB,dwpd=100,years=5" */
MUST_CHECK enum embtier_err changes_add_drive(struct changes *changes, const char *text,
                                              struct err_msg *msg);
MUST_CHECK enum embtier_err changes_add_eager(struct changes *changes, struct err_msg *msg);

/* The server's tiers of the cache. */
struct change_tiers {
    size_t count;
    char names[TIERS_MAX][TIER_NAME_MAX + 1];
    double bytes[TIERS_MAX];
};
/* Fills @changes with those of a server with these tiers and this layout: twice the memory of each
 * tier, a slower tier four times as large as the first if there is only one, the other layouts,
 * and first values. */
void changes_choose(struct changes *changes, const struct change_tiers *tiers,
                    enum config_layout layout);

#endif
