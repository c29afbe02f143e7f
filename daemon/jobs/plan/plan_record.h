/* SPDX-License-Identifier: Apache-2.0 */
/* plan_record.h: generation, hash and number of tables of the placement plan in force.
 *
 * The file is plan.json in the store's first directory. A checkpoint does not have it, and neither
 * does a restore change it: it is about homes in memory, which a restore keeps. Thread: any. */
#ifndef EMBTIER_DAEMON_JOBS_PLAN_PLAN_RECORD_H
#define EMBTIER_DAEMON_JOBS_PLAN_PLAN_RECORD_H

#include <stdint.h>

#include "base/err.h"
#include "base/macros.h"

#define PLAN_RECORD_FILE "plan.json"

struct plan_state {
    uint64_t generation; /* 0: no plan is in force */
    uint64_t hash;       /* of its file: the 64 bits of XXH3 */
    uint64_t applied_ms; /* when it was put in force, since 1970 */
    uint32_t tables;     /* 0: not known */
};

struct plan_record;

/* Reads the record in @directory, which is copied. CORRUPT: it is damaged. VERSION: a newer version
 * of embtier wrote it. */
MUST_CHECK enum embtier_err plan_record_open(const char *directory, struct plan_record **ret_record,
                                             struct err_msg *msg);
void plan_record_free(struct plan_record *record);
DEFINE_CLEANUP(struct plan_record, plan_record_free)

struct plan_state plan_record_get(struct plan_record *record);
/* MISMATCH: the plan in force has a greater generation, or the same one and another hash. */
MUST_CHECK enum embtier_err plan_record_check(struct plan_record *record, uint64_t generation,
                                              uint64_t hash, struct err_msg *msg);
/* Writes the file, then changes the record. On failure both stay as they are. */
MUST_CHECK enum embtier_err plan_record_set(struct plan_record *record,
                                            const struct plan_state *state, struct err_msg *msg);

#endif
