/* SPDX-License-Identifier: Apache-2.0 */
/* rules.h: the user's own constraints of a plan, and limits of the machine that may be exceeded
 * with a warning.
 *
 * The file is YAML (docs/internals/placement/planning.md). Names in it are those of the profile's
 * tables and of the machine's memories. Thread: any. */
#ifndef EMBTIER_PLACEMENT_MACHINE_RULES_H
#define EMBTIER_PLACEMENT_MACHINE_RULES_H

#include <stdbool.h>

#include "placement/machine/machine.h"
#include "placement/model/model.h"

/* X(name, word, what it bounds, unit) */
#define RULES_LIMIT_TABLE(X)                                                                       \
    X(TARGET, "target", "seconds that a batch may take at the target", "s")                        \
    X(READ_IOPS, "read_iops", "blocks read from SSD", "blocks/s")                                  \
    X(WRITE_BANDWIDTH, "write_bandwidth", "bytes written to SSD", "bytes/s")                       \
    X(DRIVE_WRITES, "drive_writes", "bytes written to SSD under its warranty", "bytes/day")

enum rules_limit {
#define X(name, word, text, unit) LIMIT_##name,
    RULES_LIMIT_TABLE(X)
#undef X
        RULES_LIMITS
};

/* "a.yaml:3: pin[0]"; "": no file has it. */
struct rule_name {
    char text[160];
};

struct rules {
    struct model_rule *rules; /* memories are numbered as in machine.h */
    struct rule_name *names;  /* of each rule */
    uint32_t rule_count;
    bool *unsplit;               /* of each table: all its rows have one home; NULL: none */
    double target_samples_per_s; /* 0: none */
    struct rule_name target_place, moved_place; /* of these two keys */
    uint64_t moved_bytes_max;                   /* from the plan in force; UINT64_MAX: no limit */
    double
        least_gain; /* another plan than that in force must be faster by this share of its time */
    uint64_t cache_least_bytes[TIERS_MAX]; /* arrays leave at least this much of each tier,
                                              and what the server needs (machine.h) */
    bool warns[RULES_LIMITS];              /* exceeding this limit is only a warning */
};

#define RULES_LEAST_GAIN 0.01 /* the default */

/* Rules without any constraint. NO_MEMORY. */
MUST_CHECK enum embtier_err rules_new(struct rules **ret_rules);
void rules_free(struct rules *rules);
DEFINE_CLEANUP(struct rules, rules_free)

const char *rules_limit_word(enum rules_limit limit);

/* @names: of the tables, borrowed for the call. CONFIG: a mistake; @msg has file, line, key, the
 * fault and the values allowed. */
MUST_CHECK enum embtier_err rules_file_load(const char *path, const struct machine *machine,
                                            const char *const *names, uint32_t table_count,
                                            struct rules **ret_rules, struct err_msg *msg);

#endif
