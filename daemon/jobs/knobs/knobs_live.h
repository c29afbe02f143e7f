/* SPDX-License-Identifier: Apache-2.0 */
/* knobs_live.h: the one table of knobs that a running server takes, with the places in which each
 * works. It has exactly the keys that are LIVE in config/config_keys.h, those of tiers for each
 * tier that there may be. Thread: that of knobs.h. */
#ifndef EMBTIER_DAEMON_JOBS_KNOBS_KNOBS_LIVE_H
#define EMBTIER_DAEMON_JOBS_KNOBS_KNOBS_LIVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "config/config.h"
#include "daemon/jobs/knobs/knobs_opts.h"

/* The table works on these. */
struct knobs_live {
    struct knobs_opts opts;
    _Atomic uint64_t limits[KNOB_LIMIT_COUNT];
    /* As they were set last; 0: not since the start. Read while another is set. */
    _Atomic uint64_t tier_bytes[TIERS_MAX];
    char hours[256]; /* rocksdb.compaction_hours as it was written last, or as it is in force */
};

struct knob_live {
    const char *name; /* "log.level" */
    /* Puts the value that @next has in force. Others of @next are in force already, or will be. */
    enum embtier_err (*apply)(struct knobs_live *live, const struct config *next,
                              struct err_msg *msg);
    /* Writes the value in force into @now. */
    void (*read)(struct knobs_live *live, struct config *now);
};

extern const struct knob_live knobs_live_table[];
extern const uint32_t knobs_live_count;

/* True if apply() waits for rows, or for SSD. Values are read meanwhile. */
bool knobs_live_is_long(const struct knob_live *row);

/* Sets @limit from @config. */
void knobs_live_set_limit(struct knobs_live *live, enum knob_limit limit,
                          const struct config *config);
/* Returns the settings in force of all keys: @start, and in it those of the table. The texts are
 * @start's and @live's; the struct is not to be freed. A value may be one that was asked for, from
 * which another one follows, and 0 for one that is computed. */
struct config knobs_live_read(struct knobs_live *live, const struct config *start);
/* Puts the values that follow from the settings @config in their places: the sizes that tiers have,
 * and what is computed while nothing is set. They are for people, not for a configuration: each of
 * them would be set then. */
void knobs_live_show(const struct knobs_live *live, struct config *config);
/* Gives the tiers of @other the sizes of @shown where both would be the same in force. */
void knobs_live_match_tiers(const struct knobs_live *live, const struct config *shown,
                            struct config *other);

#endif
