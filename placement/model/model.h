/* SPDX-License-Identifier: Apache-2.0 */
/* model.h: what a table-wise placement decides on: tables, GPUs, memories, and rules of the user.
 *
 * Each table lies in one memory, in the share of one GPU (MTrainS, section 5.6). A private memory
 * (HBM) has its capacity and bandwidth once for each GPU. A shared one (DRAM, SSD) has one capacity
 * for all GPUs, and each GPU gets an equal share of its bandwidth. The lookup time of a GPU is the
 * sum over its tables of bytes read in a batch divided by bandwidth. The best placement has the
 * least lookup time of the slowest GPU (equation 6). A model may give each table's times itself.
 *
 * A place is a memory of a GPU. Its number is memory * gpu_count + gpu.
 *
 * Numbers come from files, so model_check() comes first. All other functions of this folder rely on
 * it. Thread: any. */
#ifndef EMBTIER_PLACEMENT_MODEL_MODEL_H
#define EMBTIER_PLACEMENT_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define MODEL_TABLES_MAX   16384
#define MODEL_GPUS_MAX     64
#define MODEL_MEMORIES_MAX 8
#define MODEL_RULES_MAX    (UINT32_C(1) << 20)
/* A double holds each whole number up to this one, and 64 bits hold the sum of all capacities. */
#define MODEL_BYTES_MAX     (UINT64_C(1) << 53)
#define MODEL_SUM_BYTES_MAX (UINT64_C(1) << 62)
/* Bytes that a batch reads of one table. 64 bits hold the sum over all tables. */
#define MODEL_READ_BYTES_MAX (UINT64_C(1) << 46)
#define MODEL_BANDWIDTH_MAX  1e18

#define MODEL_TIME_MAX_S 1e12 /* of one table */

#define MODEL_ANY UINT32_MAX

struct model_table {
    const char *name;
    uint64_t weight_bytes, state_bytes; /* of all rows; the optimizer's state for them */
    uint64_t remap_bytes;               /* of what leads from ids to rows */
    double bags_per_batch;
    double pooling_factor; /* lookups in a bag, on average */
    uint32_t lookup_bytes; /* read for one lookup */
};

struct model_memory {
    const char *name;
    bool shared;
    uint64_t capacity_bytes;      /* of each GPU, or of all together if shared */
    double bandwidth_bytes_per_s; /* the same */
    const char *place; /* of the capacity, for messages, such as "a.yaml:3: ssd.bytes"; NULL or "":
                          it comes from no file. Borrowed */
};

enum model_rule_kind {
    MODEL_PIN,      /* @table lies in @memory, on @gpu; one of them may be MODEL_ANY */
    MODEL_FORBID,   /* @table does not lie there; MODEL_ANY stands for all */
    MODEL_TOGETHER, /* @table and @other lie in the same place */
    MODEL_RESERVE,  /* @bytes of @memory stay free; if it is private, on @gpu or on all */
};

struct model_rule {
    enum model_rule_kind kind;
    uint32_t table, other;
    uint32_t memory, gpu;
    uint64_t bytes;
    const char *name; /* for messages, such as "a.yaml:3: pin[0]"; NULL: its number. Borrowed */
};

struct model_rule_text {
    char text[24];
};

/* Returns the name of a rule, or "rule N", which it writes. */
const char *model_rule_name(const struct model_rule *rules, uint32_t rule,
                            struct model_rule_text *buffer);
#define MODEL_RULE_NAME(rules, rule)                                                               \
    model_rule_name(rules, rule, &(struct model_rule_text){ { 0 } })

/* All is borrowed, and stays as it is for as long as an instance is made of it. */
struct model {
    const struct model_table *tables;
    const struct model_memory *memories;
    const struct model_rule *rules;
    uint32_t table_count, memory_count, gpu_count, rule_count;
    /* table_count * memory_count: the time of a batch's lookups of a table in a memory, for
     * memories whose time is not proportional to bytes, such as a cache. NULL: bytes read /
     * bandwidth. */
    const double *times_s;
};

/* INVALID: @msg names the table, memory or rule, the key, its value, and what is allowed. */
MUST_CHECK enum embtier_err model_check(const struct model *model, struct err_msg *msg);

/* Begins a message about a memory's room with the place that its capacity comes from. */
void model_begin_message(const struct model_memory *memory, struct err_msg *msg);

/* Adds the place of a memory's capacity to a message about several memories, without the part in
 * common with the last one: the file, or also the line. @last: of the last call; begins as "". */
void model_add_place(const struct model_memory *memory, const char **last, struct err_msg *msg);

/* The memory that a table takes, and the bytes that a batch reads of it, rounded up. */
uint64_t model_table_bytes(const struct model_table *table);
uint64_t model_table_read_bytes(const struct model_table *table);

/* The bandwidth that one GPU gets of a memory. */
double model_gpu_bandwidth(const struct model *model, uint32_t memory);

static inline uint32_t model_place(const struct model *model, uint32_t memory, uint32_t gpu)
{
    return memory * model->gpu_count + gpu;
}

static inline uint32_t model_place_count(const struct model *model)
{
    return model->memory_count * model->gpu_count;
}

#endif
