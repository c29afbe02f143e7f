/* SPDX-License-Identifier: Apache-2.0 */
/* placement_fixture.h: random small models, and their best placement by brute force. */
#ifndef EMBTIER_TESTS_UNIT_PLACEMENT_PLACEMENT_FIXTURE_H
#define EMBTIER_TESTS_UNIT_PLACEMENT_PLACEMENT_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "placement/model/assignment.h"
#include "placement/random.h"

#define CASE_TABLES 8
#define CASE_GPUS   2
#define CASE_RULES  6

struct placement_case {
    struct model model;
    struct model_table tables[CASE_TABLES];
    struct model_memory memories[3];
    struct model_rule rules[CASE_RULES];
};

/* One number is drawn in each statement, as their order within one is not defined. */
static inline struct model_rule draw_rule(struct random *random, uint32_t tables, uint32_t gpus)
{
    struct model_rule rule;

    rule.kind = random_below(random, MODEL_RESERVE + 1);
    rule.table = random_below(random, tables);
    rule.other = random_below(random, tables);
    rule.memory = random_below(random, 3);
    rule.gpu = random_below(random, gpus);
    rule.bytes = random_below(random, 10);
    if (random_below(random, 2))
        rule.gpu = MODEL_ANY;
    else if (rule.kind != MODEL_RESERVE && random_below(random, 3) == 0)
        rule.memory = MODEL_ANY;
    return rule;
}

static inline struct model_table draw_table(struct random *random)
{
    struct model_table table = { .name = "t", .lookup_bytes = 4 };

    table.weight_bytes = 1 + random_below(random, 60);
    table.state_bytes = random_below(random, 5);
    table.bags_per_batch = random_below(random, 100);
    table.pooling_factor = 10 * random_share(random);
    return table;
}

static inline void draw_memories(struct random *random, struct model_memory *ret_memories)
{
    ret_memories[0] = (struct model_memory){ .name = "HBM", .bandwidth_bytes_per_s = 1600 };
    ret_memories[1] = (struct model_memory){ .name = "DRAM", .shared = true };
    ret_memories[2] = (struct model_memory){ .name = "SSD", .shared = true };
    ret_memories[0].capacity_bytes = 20 + random_below(random, 80);
    ret_memories[1].capacity_bytes = 20 + random_below(random, 80);
    ret_memories[1].bandwidth_bytes_per_s = 100 + random_below(random, 100);
    ret_memories[2].capacity_bytes = 100 + random_below(random, 300);
    ret_memories[2].bandwidth_bytes_per_s = 1 + random_below(random, 20);
}

/* Few bytes, so that many capacities are hit to the byte. About a tenth cannot be placed. */
static inline void draw_case(struct random *random, struct placement_case *c)
{
    const uint32_t tables = 1 + random_below(random, CASE_TABLES);
    const uint32_t gpus = 1 + random_below(random, CASE_GPUS);
    const uint32_t rules = random_below(random, CASE_RULES + 1) / 2;

    for (uint32_t i = 0; i < tables; i++)
        c->tables[i] = draw_table(random);
    draw_memories(random, c->memories);
    for (uint32_t i = 0; i < rules; i++)
        c->rules[i] = draw_rule(random, tables, gpus);
    c->model = (struct model){ c->tables, c->memories, c->rules, tables, 3, gpus, rules, NULL };
}

/* ---- brute force ---- */

struct brute {
    const struct model *model;
    uint32_t places[CASE_TABLES];
    uint32_t best_places[CASE_TABLES], worst_places[CASE_TABLES];
    double best_s, worst_s; /* best_s is INFINITY if there is no placement */
};

/* True: all tables up to @table fit into their memories, without reserved bytes. */
static inline bool brute_fits(const struct brute *b, uint32_t table)
{
    uint64_t bytes = 0;
    const struct model *const m = b->model;
    const uint32_t memory = b->places[table] / m->gpu_count;

    for (uint32_t i = 0; i <= table; i++)
        if (m->memories[memory].shared ? b->places[i] / m->gpu_count == memory
                                       : b->places[i] == b->places[table])
            bytes += model_table_bytes(&m->tables[i]);
    return bytes <= m->memories[memory].capacity_bytes;
}

static inline void brute_try(struct brute *b)
{
    double largest_s;

    if (assignment_check(b->model, b->places, &largest_s, NULL, NULL) != EMBTIER_OK)
        return;
    if (largest_s < b->best_s) {
        b->best_s = largest_s;
        memcpy(b->best_places, b->places, sizeof(b->places));
    }
    if (largest_s > b->worst_s) {
        b->worst_s = largest_s;
        memcpy(b->worst_places, b->places, sizeof(b->places));
    }
}

/* Counts through all placements, and skips those whose first tables do not fit. */
static inline struct brute brute_force_all(const struct model *model)
{
    struct brute b = { .model = model, .best_s = INFINITY, .worst_s = -1 };
    const uint32_t places = model_place_count(model);
    uint32_t table = 0;

    for (;;) {
        if (b.places[table] == places) {
            if (table == 0)
                return b;
            b.places[--table]++;
        } else if (!brute_fits(&b, table)) {
            b.places[table]++;
        } else if (table + 1 < model->table_count) {
            b.places[++table] = 0;
        } else {
            brute_try(&b);
            b.places[table]++;
        }
    }
}

static inline double brute_force(const struct model *model)
{
    return brute_force_all(model).best_s;
}

#endif
