/* SPDX-License-Identifier: Apache-2.0 */
/* plan_keys.h: the keys of a plan's file. Writer, reader and YAML schema are made from this one
 * list.
 *
 * X(section, key, type, where): a key has the name of its member in the section's struct. Keys are
 * written in this order. @where: KEY_ALWAYS; KEY_IF_SET, may be missing and then is empty; for a
 * part KEY_IN(homes), in parts of these homes only. Thread: any. */
#ifndef EMBTIER_PLACEMENT_PLAN_PLAN_KEYS_H
#define EMBTIER_PLACEMENT_PLAN_PLAN_KEYS_H

#include <stdio.h>

#include <cyaml/cyaml.h>

#include "placement/plan/plan.h"

#define KEY_IN(home)  (1u << (home))
#define KEY_IN_ARRAYS (KEY_IN(PLAN_HBM) | KEY_IN(PLAN_ARRAY))
#define KEY_ALWAYS    (KEY_IN_ARRAYS | KEY_IN(PLAN_CACHE))
#define KEY_IF_SET    (1u << 31)

#define PLAN_HEADER_KEYS(X)                                                                        \
    X(plan, generation, COUNT, KEY_ALWAYS)                                                         \
    X(plan, samples_per_s, REAL, KEY_ALWAYS)                                                       \
    X(plan, samples_per_batch, REAL, KEY_ALWAYS)                                                   \
    X(plan, time_s, REAL, KEY_ALWAYS)                                                              \
    X(plan, bound_s, REAL, KEY_IF_SET)                                                             \
    X(plan, gpu_count, NUMBER, KEY_ALWAYS)                                                         \
    X(plan, table_count, NUMBER, KEY_ALWAYS)

#define PLAN_INPUT_KEYS(X)                                                                         \
    X(plan_input, name, TEXT, KEY_ALWAYS)                                                          \
    X(plan_input, hash, HASH, KEY_ALWAYS)

#define PLAN_MEMORY_KEYS(X)                                                                        \
    X(plan_memory, name, TEXT, KEY_ALWAYS)                                                         \
    X(plan_memory, gpu, GPU, KEY_IF_SET)                                                           \
    X(plan_memory, capacity_bytes, BYTES, KEY_ALWAYS)                                              \
    X(plan_memory, array_bytes, BYTES, KEY_ALWAYS)                                                 \
    X(plan_memory, cache_bytes, BYTES, KEY_ALWAYS)                                                 \
    X(plan_memory, bandwidth_bytes_per_s, REAL, KEY_ALWAYS)                                        \
    X(plan_memory, read_bytes, REAL, KEY_ALWAYS)                                                   \
    X(plan_memory, time_s, REAL, KEY_ALWAYS)

#define PLAN_TABLE_KEYS(X)                                                                         \
    X(plan_table, name, TEXT, KEY_ALWAYS)                                                          \
    X(plan_table, rows, ROWS, KEY_ALWAYS)                                                          \
    X(plan_table, dim, NUMBER, KEY_ALWAYS)                                                         \
    X(plan_table, dtype, DTYPE, KEY_ALWAYS)                                                        \
    X(plan_table, optimizer, OPTIMIZER, KEY_ALWAYS)                                                \
    X(plan_table, gpu, GPU, KEY_IF_SET)                                                            \
    X(plan_table, unsplit, FLAG, KEY_IF_SET)                                                       \
    X(plan_table, read_bytes, REAL, KEY_ALWAYS)                                                    \
    X(plan_table, reason, TEXT, KEY_IF_SET)

#define PLAN_PART_KEYS(X)                                                                          \
    X(plan_part, home, HOME, KEY_ALWAYS)                                                           \
    X(plan_part, tier, TEXT, KEY_IN(PLAN_ARRAY))                                                   \
    X(plan_part, rows, REST, KEY_ALWAYS)                                                           \
    X(plan_part, bytes, BYTES, KEY_IN_ARRAYS)                                                      \
    X(plan_part, lookup_share, REAL, KEY_ALWAYS)                                                   \
    X(plan_part, hit_rates, REALS, KEY_IN(PLAN_CACHE))                                             \
    X(plan_part, cache_bytes, REALS, KEY_IN(PLAN_CACHE))                                           \
    X(plan_part, time_s, REAL, KEY_ALWAYS)                                                         \
    X(plan_part, reads_per_s, REAL, KEY_ALWAYS)                                                    \
    X(plan_part, writes_bytes_per_day, REAL, KEY_ALWAYS)

/* X(section, keys): each has an array of struct plan_key and a struct of its texts. */
#define PLAN_SECTIONS(X)                                                                           \
    X(plan, PLAN_HEADER_KEYS)                                                                      \
    X(plan_input, PLAN_INPUT_KEYS)                                                                 \
    X(plan_memory, PLAN_MEMORY_KEYS)                                                               \
    X(plan_table, PLAN_TABLE_KEYS)                                                                 \
    X(plan_part, PLAN_PART_KEYS)

enum plan_key_type {
    PLAN_KEY_COUNT,  /* uint64_t */
    PLAN_KEY_NUMBER, /* uint32_t */
    PLAN_KEY_BYTES,  /* uint64_t; a file may have "192GiB" */
    PLAN_KEY_ROWS,   /* uint64_t; EMBTIER_UNBOUNDED is "unbounded" */
    PLAN_KEY_REST,   /* uint64_t; 0 is "rest" */
    PLAN_KEY_REAL,   /* double */
    PLAN_KEY_REALS,  /* double[PLAN_TIERS_MAX], a list with one for each tier */
    PLAN_KEY_TEXT,   /* char[] */
    PLAN_KEY_HASH,   /* uint64_t, 16 hex digits */
    PLAN_KEY_GPU,    /* uint32_t; without the key PLAN_NO_GPU */
    PLAN_KEY_FLAG,   /* bool, "true" or "false"; without the key false */
    PLAN_KEY_HOME,
    PLAN_KEY_DTYPE,
    PLAN_KEY_OPTIMIZER,
};

struct plan_key {
    const char *name; /* NULL ends an array */
    enum plan_key_type type;
    uint32_t where;
    size_t offset, room; /* of the member in the section's struct */
    size_t raw_offset;   /* of its text in the struct below, a char * or a struct raw_list */
};

struct raw_list {
    char **items;
    uint32_t items_count;
};

#define RAW_COUNT     char *
#define RAW_NUMBER    char *
#define RAW_BYTES     char *
#define RAW_ROWS      char *
#define RAW_REST      char *
#define RAW_REAL      char *
#define RAW_REALS     struct raw_list
#define RAW_TEXT      char *
#define RAW_HASH      char *
#define RAW_GPU       char *
#define RAW_FLAG      char *
#define RAW_HOME      char *
#define RAW_DTYPE     char *
#define RAW_OPTIMIZER char *

#define RAW_MEMBER(section, key, type, where) RAW_##type key;

struct raw_plan_part {
    PLAN_PART_KEYS(RAW_MEMBER)
};

struct raw_plan_table {
    PLAN_TABLE_KEYS(RAW_MEMBER)
    struct raw_plan_part *parts;
    uint32_t parts_count;
};

struct raw_plan_memory {
    PLAN_MEMORY_KEYS(RAW_MEMBER)
};

struct raw_plan_input {
    PLAN_INPUT_KEYS(RAW_MEMBER)
};

struct raw_plan {
    char *format, *version;
    PLAN_HEADER_KEYS(RAW_MEMBER)
    struct raw_plan_input *inputs;
    uint32_t inputs_count;
    struct raw_plan_memory *memories;
    uint32_t memories_count;
    struct raw_plan_table **tables; /* by pointer: libcyaml moves the list for each item */
    uint32_t tables_count;
};

#define X(section, keys) extern const struct plan_key section##_keys[];
PLAN_SECTIONS(X)
#undef X

extern const struct cyaml_schema_value plan_schema;

/* Returns true if a section's struct at @from has the key. @home: the part's; any in a section that
 * is no part. */
bool plan_key_is_set(const struct plan_key *key, const void *from, enum plan_home home);
/* Writes the member as YAML; lists have @list_count items. */
void plan_key_write(const struct plan_key *key, const void *from, uint32_t list_count, FILE *file);
/* Sets the member from @text, or its item @item if it is a list. INVALID: the text is no such
 * value; plan_key_allowed() tells those that are. */
MUST_CHECK enum embtier_err plan_key_parse(const struct plan_key *key, const char *text,
                                           uint32_t item, void *into);
const char *plan_key_allowed(const struct plan_key *key);

#endif
