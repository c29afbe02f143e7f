/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/model/items.h"

/* Follows the links to the first table of those that are kept together, and shortens them. */
static uint32_t first_table(uint32_t *links, uint32_t table)
{
    while (links[table] != table) {
        links[table] = links[links[table]];
        table = links[table];
    }
    return table;
}

static void join_tables(const struct model_rule *rules, uint32_t rule_count, uint32_t *links)
{
    for (uint32_t i = 0; i < rule_count; i++)
        if (rules[i].kind == MODEL_TOGETHER) {
            const uint32_t a = first_table(links, rules[i].table);
            const uint32_t b = first_table(links, rules[i].other);

            links[MAX(a, b)] = MIN(a, b);
        }
}

/* A first table comes before the others of its item, so the item's number is known by then. */
uint32_t model_items(const struct model_rule *rules, uint32_t rule_count, uint32_t table_count,
                     uint32_t *ret_items)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < table_count; i++)
        ret_items[i] = i;
    join_tables(rules, rule_count, ret_items);
    for (uint32_t i = 0; i < table_count; i++)
        ret_items[i] = first_table(ret_items, i);
    for (uint32_t i = 0; i < table_count; i++)
        ret_items[i] = ret_items[i] == i ? count++ : ret_items[ret_items[i]];
    return count;
}
