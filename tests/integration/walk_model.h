/* SPDX-License-Identifier: Apache-2.0 */
/* walk_model.h: the model of every row's value, for the random walk (test_random_walk.c).
 *
 * A row's value is a function of table, row and version: version 0 is the initial value, and
 * each SET of the row makes the next version. In half of the tables SETs write any bits, NaN and
 * infinity among them. In the others numbers are of moderate size, so that sums of many stay
 * finite. So the model stores no values, only two numbers a row:
 *
 *   newest    the last version that was submitted
 *   settled   the oldest version that the row may still have: that one, or a later one, was
 *             answered or seen
 *
 * Only one session sets a row (its owner), so versions come in order. The owner must see the
 * newest version, unless the row is loose: a SET of it was refused, or its answer was lost. All
 * other sessions must see a whole row of a version from settled to newest; the version they see
 * becomes settled. Thread: one. */
#ifndef EMBTIER_TESTS_INTEGRATION_WALK_MODEL_H
#define EMBTIER_TESTS_INTEGRATION_WALK_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/spec/table_spec.h"

#define MODEL_OWNERS      3 /* row i belongs to session i % MODEL_OWNERS */
#define MODEL_NO_VERSION  UINT32_MAX
#define MODEL_ROWS_MAX    100000
#define MODEL_RECENT_ROWS 16
#define MODEL_TOP_ROWS    (4 * MODEL_OWNERS)

struct model_row {
    uint32_t settled;
    uint32_t newest : 31;
    uint32_t loose : 1;
};

struct model_table {
    struct table_spec spec;
    uint64_t serial;   /* unique in the walk: tells apart tables of the same name */
    uint32_t table_id; /* the number that the server gave it */
    uint32_t row_count;
    uint64_t set_rows;       /* answered, since the server started */
    uint64_t maybe_set_rows; /* submitted, but the answer was lost */
    uint32_t recent[MODEL_RECENT_ROWS];
    struct model_row rows[];
};

/* The walk's decisions: xorshift64*. */
uint64_t model_random(uint64_t *random);
/* Returns a number from 0 to @below - 1. */
uint32_t model_pick(uint64_t *random, uint64_t below);

/* Makes a random spec of a table with about @bytes of rows. *@ret_row_count: the number of rows,
 * which is also the spec's if it is bounded. */
void model_random_spec(uint64_t *random, const char *name, uint64_t bytes,
                       struct table_spec *ret_spec, uint32_t *ret_row_count);
/* Gives it a random home, in which it has room; for a new table. */
void model_random_home(uint64_t *random, struct table_spec *spec);
/* The same for a table that is there, which may also be split. Returns the ids of its hot rows,
 * malloced; NULL: it has another home. */
uint64_t *model_random_move(uint64_t *random, struct model_table *table);
struct model_table *model_table_new(const struct table_spec *spec, uint32_t row_count,
                                    uint64_t serial);

/* Returns a row's id. Rows of an unbounded table are spread over all 64-bit ids. */
uint64_t model_id(const struct model_table *table, uint32_t row);
/* Patterns of picked rows, which now and then repeat a row that was picked before by any
 * session. With @owner, all rows are that owner's. */
enum model_pattern {
    MODEL_UNIFORM,
    MODEL_HOT,
    MODEL_RUN,
    MODEL_RECENT,
    MODEL_TOP, /* the few hottest rows */
    MODEL_PATTERNS,
};
uint32_t model_pick_row(struct model_table *table, uint64_t *random, enum model_pattern pattern,
                        uint32_t before, int owner);

/* model_fill() writes the weights of a version. The other returns the oldest version from @low
 * to @high that has @weights, or MODEL_NO_VERSION. */
void model_fill(const struct model_table *table, uint32_t row, uint32_t version, void *ret_weights);
uint32_t model_match(const struct model_table *table, uint32_t row, uint32_t low, uint32_t high,
                     const void *weights);

/* Adds a version's dim numbers to @sums, as row @number of its bag. */
void model_pool(const struct model_table *table, uint32_t row, uint32_t version,
                enum embtier_pool mode, float weight, uint32_t number, float *sums);

/* Notes that a SET of the row is submitted; returns its version. */
uint32_t model_set(struct model_table *table, uint32_t row);
/* Notes that the version was answered, or seen. */
void model_settle(struct model_table *table, uint32_t row, uint32_t version);
/* Notes that a SET was refused, or that its answer was lost. */
void model_loosen(struct model_table *table, uint32_t row);

#endif
