/* SPDX-License-Identifier: Apache-2.0 */
/* plan_inputs.h: options and files that the commands which make plans share. Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_PLACEMENT_PLAN_INPUTS_H
#define EMBTIER_TOOLS_CLI_PLACEMENT_PLAN_INPUTS_H

#include "placement/machine/rules.h"
#include "placement/profile/measured_profile.h"
#include "tools/cli/cli.h"

/* Tells people if nothing says which optimizers the tables have: a trace does not, and @text is
 * NULL. */
void plan_inputs_tell_state(const struct measured_profile *profile, const char *text);
/* Parses "adam", "adam,users=sgd" or "users=sgd", from left to right; NULL: none for all tables.
 * The caller frees the array, which has an optimizer for each table. */
MUST_CHECK enum embtier_err plan_inputs_optimizers(const struct measured_profile *profile,
                                                   const char *text,
                                                   enum embtier_optimizer **ret_optimizers,
                                                   struct err_msg *msg);
/* Hashes the bytes of a file, XXH3-64. INVALID: it is no regular file. A pipe has nothing left for
 * a second reading, and one without a writer would never end. */
MUST_CHECK enum embtier_err plan_inputs_hash(const char *path, uint64_t *ret_hash,
                                             struct err_msg *msg);
/* @path: NULL gives rules without a constraint. INVALID: it is no regular file. Other errors as
 * rules_file_load(). */
MUST_CHECK enum embtier_err plan_inputs_rules(const struct measured_profile *profile,
                                              const struct machine *machine, const char *path,
                                              struct rules **ret_rules, struct err_msg *msg);
/* Parses a number above 0 of the option --@name. Returns -1, or the exit code of a mistake. */
int plan_inputs_number(const struct cli *cli, const char *name, const char *text,
                       double *ret_number);

#endif
