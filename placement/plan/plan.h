/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h: where the rows of all tables are to live, and what that is predicted to cost.
 *
 * A table's rows are sorted by hotness and cut into parts, the hottest first. A part has one home.
 * A table of one part lies whole in its home. SSD holds a copy of each row of each home, so a home
 * is about memory, and the cache is the home of rows that are only on SSD while cold.
 *
 * Pure values. A plan that was read from a file also knows the lines of its keys. Thread: any. */
#ifndef EMBTIER_PLACEMENT_PLAN_PLAN_H
#define EMBTIER_PLACEMENT_PLAN_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/embtier_types.h"
#include "base/err.h"
#include "base/spec/tier_spec.h"

/* One part in the memory of a GPU, one in each tier of arrays, one in the cache. */
#define PLAN_PARTS_MAX    6
#define PLAN_TABLES_MAX   8192
#define PLAN_GPUS_MAX     64
#define PLAN_TIERS_MAX    TIERS_MAX
#define PLAN_MEMORIES_MAX (PLAN_GPUS_MAX + PLAN_TIERS_MAX + 1)
#define PLAN_INPUTS_MAX   16
#define PLAN_TEXT_BYTES   384
#define PLAN_NO_GPU       UINT32_MAX
#define PLAN_SSD          "ssd" /* the name of the memory that holds a copy of each row */

/* In the order of a table's parts. */
enum plan_home {
    PLAN_HBM,   /* an array in the memory of @gpu */
    PLAN_ARRAY, /* an array in the tier @tier */
    PLAN_CACHE, /* the cache over SSD; the coldest part */
};

/* Predicted for a batch, unless it says otherwise. */
struct plan_part {
    enum plan_home home;
    uint32_t gpu;                       /* PLAN_HBM: the table's; else PLAN_NO_GPU */
    char tier[TIER_NAME_MAX + 1];       /* PLAN_ARRAY: which; else "" */
    uint64_t rows;                      /* 0: all that are left, of an unbounded table */
    uint64_t bytes;                     /* that rows, state and remap take there; 0 in the cache */
    double lookup_share;                /* of the table's lookups, 0 to 1; all parts: 1, or 0 */
    double hit_rates[PLAN_TIERS_MAX];   /* PLAN_CACHE: of this part's lookups, by tier */
    double cache_bytes[PLAN_TIERS_MAX]; /* PLAN_CACHE: what it has of each tier, mean */
    double time_s;                      /* to look up */
    double reads_per_s;                 /* from SSD, at the plan's samples/s */
    double writes_bytes_per_day;        /* to SSD, the same */
};

struct plan_table {
    char name[EMBTIER_TABLE_NAME_MAX + 1];
    uint64_t rows; /* EMBTIER_UNBOUNDED: every 64-bit id is a row */
    uint32_t dim;
    enum embtier_dtype dtype;
    enum embtier_optimizer optimizer;
    uint32_t gpu; /* that looks the table up; PLAN_NO_GPU: there are none */
    bool unsplit; /* all its rows have one home, also in later plans */
    uint32_t part_count;
    struct plan_part parts[PLAN_PARTS_MAX]; /* the hottest rows first; a cached part is last */
    double read_bytes;                      /* by a batch */
    char reason[PLAN_TEXT_BYTES];           /* why it is there: a sentence, or "" */
};

/* The memory of one GPU, a tier, or the SSD. */
struct plan_memory {
    char name[TIER_NAME_MAX + 1]; /* "hbm", "dram", "pmem", PLAN_SSD */
    uint32_t gpu;                 /* PLAN_NO_GPU: shared by all */
    uint64_t capacity_bytes;
    uint64_t array_bytes; /* the sum of the parts there; on SSD, those of all rows */
    uint64_t cache_bytes; /* kept for the cache; only in a tier */
    double bandwidth_bytes_per_s;
    double read_bytes; /* by a batch */
    double time_s;     /* of a batch */
};

/* In the order of a plan's memories. */
enum plan_memory_kind { PLAN_MEMORY_GPU, PLAN_MEMORY_TIER, PLAN_MEMORY_SSD };

/* A file that the plan was made from, or a set of options. */
struct plan_input {
    char name[PLAN_TEXT_BYTES]; /* "profile", "machine", "rules", "options" */
    uint64_t hash;              /* XXH3-64 of its bytes */
};

struct yaml_doc;

struct plan {
    struct yaml_doc *file; /* that the plan was read from, owned; NULL: it was made in memory */
    uint64_t generation;   /* 1 more than the plan that it replaces; the first is 1 */
    uint32_t input_count;
    struct plan_input inputs[PLAN_INPUTS_MAX];
    uint32_t gpu_count; /* 0: clients look rows up from the processor's memory */
    double samples_per_batch;
    double samples_per_s; /* predicted */
    double time_s;        /* of the slowest GPU's lookups in a batch */
    double bound_s;       /* no plan is faster under the same model; 0: none is known */
    /* The tiers are the shared memories but the SSD, in their order, the fastest first. */
    uint32_t tier_count;
    uint64_t cache_bytes[PLAN_TIERS_MAX]; /* those of the tiers' memories */
    uint32_t memory_count;
    struct plan_memory *memories; /* the GPUs' first, then the tiers, the SSD last */
    uint32_t table_count;
    struct plan_table *tables;
};

/* Makes a plan of zeroed tables and memories. NO_MEMORY. */
MUST_CHECK enum embtier_err plan_new(uint32_t table_count, uint32_t memory_count,
                                     struct plan **ret_plan);
void plan_free(struct plan *plan);
DEFINE_CLEANUP(struct plan, plan_free)

/* ---- Places in a file ---- */

struct plan_place {
    char text[256];
};

/* Returns the head of a message about a key: "a.plan:31: tables[3].dim: ". @table: the key is one
 * of this table's; NULL: of the whole plan. Returns "" if the plan was made in memory. */
const char *plan_place(struct plan_place *buffer, const struct plan *plan,
                       const struct plan_table *table, const char *key, ...) PRINTF_LIKE(4, 5);
/* The same in a buffer that lives until the end of the block. */
#define PLAN_PLACE(plan, table, ...)                                                               \
    plan_place(&(struct plan_place){ { 0 } }, (plan), (table), __VA_ARGS__)

/* ---- Figures that follow from others ---- */

enum plan_memory_kind plan_memory_kind(const struct plan_memory *memory);
/* Returns the number of the memory that holds the part: that of its GPU, its tier, or the SSD for a
 * cached part. Returns memory_count if there is none. */
uint32_t plan_memory_of(const struct plan *plan, const struct plan_part *part);
/* Bytes of a row: weights and the optimizer's state. */
uint64_t plan_row_bytes(const struct plan_table *table);

/* The rest is for plans that plan_check() has passed. */

/* Returns the bytes that neither arrays nor the cache take. */
uint64_t plan_memory_left(const struct plan_memory *memory);
/* Returns the bytes of all rows, without remap; of an unbounded table, of those in arrays. */
double plan_table_bytes(const struct plan_table *table);
double plan_table_time_s(const struct plan_table *table);
/* Returns the part's lookups that need no SSD, 0 to 1. */
double plan_part_hit_rate(const struct plan *plan, const struct plan_part *part);

/* ---- Checks ---- */

/* A number that cannot be: its place in the plan, as in a file, and the fault. */
struct plan_mistake {
    char key[64]; /* "tables[3].parts[0].bytes" */
    char text[384];
};

/* Checks every number by itself and against the others: rows add up to the table's, bytes fit the
 * memories, names are unique. INVALID: *@ret_mistake tells the first mistake. NO_MEMORY. */
MUST_CHECK enum embtier_err plan_find_mistake(const struct plan *plan,
                                              struct plan_mistake *ret_mistake);
/* The same for all but the tables, which need not be there yet. */
MUST_CHECK enum embtier_err plan_find_frame_mistake(const struct plan *plan,
                                                    struct plan_mistake *ret_mistake);
/* As plan_find_mistake(); the message is "KEY: fault; allowed: …". */
MUST_CHECK enum embtier_err plan_check(const struct plan *plan, struct err_msg *msg);

#endif
