/* SPDX-License-Identifier: Apache-2.0 */
/* items.h: tables that rules keep together, as one item. Pure values. */
#ifndef EMBTIER_PLACEMENT_MODEL_ITEMS_H
#define EMBTIER_PLACEMENT_MODEL_ITEMS_H

#include "placement/model/model.h"

/* Writes each table's item, and returns their number. Items are numbered from 0 on, in the order of
 * their first tables. */
uint32_t model_items(const struct model_rule *rules, uint32_t rule_count, uint32_t table_count,
                     uint32_t *ret_items);

#endif
