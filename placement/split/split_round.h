/* SPDX-License-Identifier: Apache-2.0 */
/* split_round.h: turns cuts of a draft into whole rows that fit in whole bytes.
 *
 * Rows are rounded down. If a room is still too full, the coldest rows of some table leave it for
 * the table's next level. Then the slowest GPU fills what is free, with the rows that gain most for
 * each byte. Thread: any. */
#ifndef EMBTIER_PLACEMENT_SPLIT_SPLIT_ROUND_H
#define EMBTIER_PLACEMENT_SPLIT_SPLIT_ROUND_H

#include "placement/split/split_draft.h"

/* Writes table_count cuts. They may still not fit: split_check() tells. */
void split_round(const struct split_draft *d, struct split_cut *ret_cuts);

#endif
