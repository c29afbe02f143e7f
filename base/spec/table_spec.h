/* SPDX-License-Identifier: Apache-2.0 */
/* table_spec.h: a table's specification as the user wrote it, and the row layout that follows from
 * it. Pure values, copied freely. */
#ifndef EMBTIER_BASE_SPEC_TABLE_SPEC_H
#define EMBTIER_BASE_SPEC_TABLE_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/embtier_types.h"
#include "base/err.h"
#include "base/spec/tier_spec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Hex digits of the number that a table gets at creation and shares with its copies. */
#define TABLE_UUID_CHARS 32

struct table_spec {
    char name[EMBTIER_TABLE_NAME_MAX + 1]; /* [A-Za-z0-9_.-]+, does not start with '.' or '-' */
    uint64_t rows;                         /* EMBTIER_UNBOUNDED: every 64-bit id is a row */
    uint32_t dim;                          /* 1 to EMBTIER_DIM_MAX */
    enum embtier_dtype dtype;
    enum embtier_optimizer optimizer; /* decides the bytes of state kept after the weights */
    enum embtier_init init;
    double init_params[2]; /* see EMBTIER_INIT_TABLE; finite; unused ones are 0 */
#define X(name, field, lowest, highest, standard, text) double field;
    EMBTIER_HYPERPARAMETER_TABLE(X) /* those that the optimizer lacks are 0 */
#undef X
    bool rounds_to_nearest; /* f16 and bf16 weights after an update; false: stochastically */
    bool allows_nonfinite;  /* accept gradients with NaN or infinity; false: refuse such a push */
    enum embtier_durability durability;
    enum embtier_home home;            /* array: needs a row count; split: hot rows */
    char home_tier[TIER_NAME_MAX + 1]; /* of an array or a split; "": the server chooses */
    /* A split's number of hot rows, and a sum of their ids (store/hot_rows.h). In the catalog a
     * table has a number for as long as such ids may be stored for it. */
    uint64_t hot_rows;
    uint64_t hot_sum;
    uint64_t seed;
    bool eager;            /* write all rows at creation; needs a row count */
    uint32_t init_version; /* of the generator in kernels/cpu/init/init_rows.h; 0: the newest */
    /* Checkpoints, exports and imports carry these two along with the rows. */
    char uuid[TABLE_UUID_CHARS + 1]; /* "": none; a new table gets one */
    uint64_t step; /* the greatest step of a push that has changed rows, at the time of this copy */
};

/* The number of hyperparameters. */
enum {
#define X(name, field, lowest, highest, standard, text) +1
    HYPERPARAMETER_COUNT = 0 EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
};

struct hyperparameters_text {
    char text[HYPERPARAMETER_COUNT * 40]; /* a word and a number each */
};

/* True for 1 to EMBTIER_TABLE_NAME_MAX of [A-Za-z0-9_.-], not starting with '.' or '-'. Names of
 * groups follow the same rule. */
bool table_name_is_valid(const char *name);
bool tier_name_is_valid(const char *name);
/* Sets the home tier. @tier may be NULL; a name that is too long becomes one that
 * table_spec_check() refuses. */
void table_spec_set_tier(struct table_spec *spec, const char *tier);
/* Makes the table a cached one, of no tier. Its hot rows stay as they are: their ids may be stored
 * still. */
void table_spec_set_cached(struct table_spec *spec);
/* True for TABLE_UUID_CHARS hex digits, or "". */
bool table_uuid_is_valid(const char *uuid);
/* Replaces each hyperparameter that is EMBTIER_DEFAULT by the optimizer's default. */
void table_spec_fill_defaults(struct table_spec *spec);
/* Fails with EMBTIER_INVALID and a one-line reason that names the field and the values allowed. */
MUST_CHECK enum embtier_err table_spec_check(const struct table_spec *spec, struct err_msg *msg);
/* The same for a table about to be created, with checks that existing tables need not pass. */
MUST_CHECK enum embtier_err table_spec_check_new(const struct table_spec *spec,
                                                 struct err_msg *msg);
/* The same for an imported table. It may have been exported when an eps of 0 was still allowed. */
MUST_CHECK enum embtier_err table_spec_check_loaded(const struct table_spec *spec,
                                                    struct err_msg *msg);

uint32_t table_spec_weight_bytes(const struct table_spec *spec);
uint32_t table_spec_state_bytes(const struct table_spec *spec);

/* Convert words to numbers and back; -1 and NULL for unknown ones. */
int dtype_parse(const char *word);
int optimizer_parse(const char *word);
int init_parse(const char *word);
int durability_parse(const char *word);
int home_parse(const char *word);
const char *dtype_word(int dtype);
const char *optimizer_word(int optimizer);
const char *init_word(int init);
const char *durability_word(int durability);
const char *home_word(int home);
/* The failures that an acknowledged update survives. */
const char *durability_text(int durability);
/* Returns the name of parameter 0 or 1 of a distribution, "" if it has none. */
const char *init_param_name(int init, unsigned index);
const char *hyperparameter_word(int hyperparameter);
/* "stochastic" is 0 and "nearest" is 1; -1 for another word. */
int rounding_parse(const char *word);
const char *rounding_word(bool to_nearest);
uint32_t dtype_bytes(enum embtier_dtype dtype);

bool optimizer_has(int optimizer, int hyperparameter);
/* Returns 0 if the optimizer lacks it. */
double optimizer_default(int optimizer, int hyperparameter);
/* "eps 1e-08, alpha 0.99, …": the optimizer's hyperparameters with their numbers in @values
 * (HYPERPARAMETER_COUNT of them), or without numbers if that is NULL. "" if it has none. The two
 * functions below do this for an optimizer's defaults and for a table. */
const char *hyperparameters_text(struct hyperparameters_text *buffer, int optimizer,
                                 const double *values);
const char *optimizer_defaults_text(struct hyperparameters_text *buffer, int optimizer);
const char *table_spec_hyperparameters(const struct table_spec *spec,
                                       struct hyperparameters_text *buffer);

#ifdef __cplusplus
}
#endif
#endif
