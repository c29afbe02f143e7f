/* SPDX-License-Identifier: Apache-2.0 */
/* home_rules.h: differences between homes of rows that table specs have to follow, a row each
 * (docs/internals/homes.md). All functions are false for a number that is no home. Thread: any. */
#ifndef EMBTIER_BASE_SPEC_HOME_RULES_H
#define EMBTIER_BASE_SPEC_HOME_RULES_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* True if only tables with a number of rows can have this home. */
bool home_needs_rows(int home);
/* True if rows lie in one tier, which the user can choose. The server takes memory of that tier for
 * each table. */
bool home_has_tier(int home);
/* True if the user names hot rows. Only a move of a table can do that, and the store keeps their
 * ids. */
bool home_has_hot_rows(int home);

#ifdef __cplusplus
}
#endif
#endif
