/* SPDX-License-Identifier: Apache-2.0 */
/* exact_lru.h: an LRU cache of two tiers that tables share, simulated row by row. */
#ifndef EMBTIER_TESTS_UNIT_PLACEMENT_EXACT_LRU_H
#define EMBTIER_TESTS_UNIT_PLACEMENT_EXACT_LRU_H

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/macros.h"

#define LRU_TIERS      2
#define LRU_TABLES_MAX 64

struct lru_node {
    uint32_t before, after;
    uint16_t table;
    uint8_t tier; /* from 1 on; 0: not cached */
};

/* Bytes that a table has in a tier. */
struct lru_share {
    double bytes;
    uint64_t since; /* time */
    double sum;     /* over all times before */
};

/* A row's node is its number plus the rows of all tables before. The last LRU_TIERS nodes are the
 * lists' ends: before is the coldest row, after the hottest. */
struct exact_lru {
    struct lru_node *nodes;
    uint32_t rows;
    double used[LRU_TIERS], bytes[LRU_TIERS];
    double row_bytes[LRU_TABLES_MAX];
    uint64_t hits[LRU_TABLES_MAX][LRU_TIERS];
    uint64_t lookups[LRU_TABLES_MAX];
    uint64_t time; /* lookups of all tables */
    struct lru_share shares[LRU_TABLES_MAX][LRU_TIERS];
};

static inline void exact_lru_init(struct exact_lru *lru, uint32_t rows, const double *tier_bytes)
{
    *lru = (struct exact_lru){ .rows = rows };
    lru->nodes = calloc(rows + LRU_TIERS, sizeof(*lru->nodes));
    assert(lru->nodes);
    for (uint32_t tier = 0; tier < LRU_TIERS; tier++) {
        lru->bytes[tier] = tier_bytes[tier];
        lru->nodes[rows + tier].before = lru->nodes[rows + tier].after = rows + tier;
    }
}

static inline void exact_lru_free(struct exact_lru *lru)
{
    free(lru->nodes);
}

static inline void lru_use(struct exact_lru *lru, uint32_t table, uint32_t tier, double bytes)
{
    struct lru_share *const share = &lru->shares[table][tier];

    share->sum += share->bytes * (double)(lru->time - share->since);
    share->since = lru->time;
    share->bytes += bytes;
    lru->used[tier] += bytes;
}

/* Returns the bytes that a table has in a tier, mean over all lookups. */
static inline double exact_lru_bytes(const struct exact_lru *lru, uint32_t table, uint32_t tier)
{
    const struct lru_share *const share = &lru->shares[table][tier];

    return (share->sum + share->bytes * (double)(lru->time - share->since)) /
           (double)MAX(lru->time, UINT64_C(1));
}

static inline void lru_remove(struct exact_lru *lru, uint32_t at)
{
    struct lru_node *const node = &lru->nodes[at];

    lru->nodes[node->before].after = node->after;
    lru->nodes[node->after].before = node->before;
    lru_use(lru, node->table, node->tier - 1u, -lru->row_bytes[node->table]);
    node->tier = 0;
}

/* Puts a row at the hot end of a tier; the coldest rows leave for the next one. */
static inline void lru_insert(struct exact_lru *lru, uint32_t at, uint32_t tier)
{
    struct lru_node *const node = &lru->nodes[at];
    struct lru_node *const end = &lru->nodes[lru->rows + tier];
    uint32_t coldest;

    node->tier = (uint8_t)(tier + 1);
    node->before = lru->rows + tier;
    node->after = end->after;
    lru->nodes[end->after].before = at;
    end->after = at;
    lru_use(lru, node->table, tier, lru->row_bytes[node->table]);
    while (lru->used[tier] > lru->bytes[tier]) {
        coldest = end->before;
        lru_remove(lru, coldest);
        if (tier + 1 < LRU_TIERS)
            lru_insert(lru, coldest, tier + 1);
    }
}

static inline void exact_lru_lookup(struct exact_lru *lru, uint32_t table, uint32_t node)
{
    lru->lookups[table]++;
    lru->time++;
    lru->nodes[node].table = (uint16_t)table;
    if (lru->nodes[node].tier > 0) {
        lru->hits[table][lru->nodes[node].tier - 1]++;
        lru_remove(lru, node);
    }
    lru_insert(lru, node, 0);
}

#endif
