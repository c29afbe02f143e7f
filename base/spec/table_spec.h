/* SPDX-License-Identifier: Apache-2.0 */
/* table_spec.h: a table's specification, as the user wrote it, and the row layout that follows.
 * Pure values, copied freely. */
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

/* Hex digits of a number that a table gets when it is created, and copies of it have too. */
#define TABLE_UUID_CHARS 32

struct table_spec {
    char name[EMBTIER_TABLE_NAME_MAX + 1]; /* [A-Za-z0-9_.-]+, does not start with '.' or '-' */
    uint64_t rows;                         /* EMBTIER_UNBOUNDED: every 64-bit id is a row */
    uint32_t dim;                          /* 1 … EMBTIER_DIM_MAX */
    enum embtier_dtype dtype;
    enum embtier_optimizer optimizer; /* decides the bytes of state kept behind the weights */
    enum embtier_init init;
    double init_params[2]; /* see EMBTIER_INIT_TABLE; finite; unused ones are 0 */
#define X(name, field, lowest, highest, standard, text) double field;
    EMBTIER_HYPERPARAMETER_TABLE(X) /* those the optimizer does not have are 0 */
#undef X
    bool rounds_to_nearest; /* f16 and bf16 weights after an update; else stochastically */
    bool allows_nonfinite;  /* gradients with NaN or infinity; else a push of them is refused */
    enum embtier_durability durability;
    enum embtier_home home;            /* array: needs a row count */
    char home_tier[TIER_NAME_MAX + 1]; /* of an array; "": the server's choice */
    uint64_t seed;
    bool eager;            /* all rows are written when the table is created; needs a row count */
    uint32_t init_version; /* of the generator, kernels/cpu/init/init_rows.h; 0: the newest */
    /* Checkpoints, exports and imports take these two along with the rows. */
    char uuid[TABLE_UUID_CHARS + 1]; /* "": the table has none; one that is made gets one */
    uint64_t step; /* the greatest of the pushes that have changed rows, as of when this was said */
};

/* How many there are. */
enum {
#define X(name, field, lowest, highest, standard, text) +1
    HYPERPARAMETER_COUNT = 0 EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
};

struct hyperparameters_text {
    char text[HYPERPARAMETER_COUNT * 40]; /* a word and a number each */
};

/* [A-Za-z0-9_.-]+, not first '.' or '-', at most EMBTIER_TABLE_NAME_MAX: so are groups' names. */
bool table_name_is_valid(const char *name);
bool tier_name_is_valid(const char *name);
/* @tier may be NULL, or a name that table_spec_check() refuses then. */
void table_spec_set_tier(struct table_spec *spec, const char *tier);
/* TABLE_UUID_CHARS digits, or "". */
bool table_uuid_is_valid(const char *uuid);
/* Puts the defaults in the place of the hyperparameters that are EMBTIER_DEFAULT. */
void table_spec_fill_defaults(struct table_spec *spec);
/* Fails with EMBTIER_INVALID and a one-line reason that names the field and the values allowed. */
MUST_CHECK enum embtier_err table_spec_check(const struct table_spec *spec, struct err_msg *msg);
/* The same for a table that is to be made, of which more is asked than of one that is there. */
MUST_CHECK enum embtier_err table_spec_check_new(const struct table_spec *spec,
                                                 struct err_msg *msg);
/* And for one that is imported: it may be an export of a table that was made when an eps of 0 was
 * still allowed. */
MUST_CHECK enum embtier_err table_spec_check_loaded(const struct table_spec *spec,
                                                    struct err_msg *msg);

uint32_t table_spec_weight_bytes(const struct table_spec *spec);
uint32_t table_spec_state_bytes(const struct table_spec *spec);

/* Words to numbers and back; -1 and NULL for unknown ones. */
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
/* Name of parameter 0 or 1 of a distribution, "" if it has none. */
const char *init_param_name(int init, unsigned index);
const char *hyperparameter_word(int hyperparameter);
/* "stochastic" and "nearest": whether to nearest; -1 for another word. */
int rounding_parse(const char *word);
const char *rounding_word(bool to_nearest);
uint32_t dtype_bytes(enum embtier_dtype dtype);

bool optimizer_has(int optimizer, int hyperparameter);
/* 0 if the optimizer does not have it. */
double optimizer_default(int optimizer, int hyperparameter);
/* "eps 1e-08, alpha 0.99, …": those that the optimizer has, with the HYPERPARAMETER_COUNT @values,
 * without numbers if these are NULL; "" if it has none. Then: its defaults, and a table's. */
const char *hyperparameters_text(struct hyperparameters_text *buffer, int optimizer,
                                 const double *values);
const char *optimizer_defaults_text(struct hyperparameters_text *buffer, int optimizer);
const char *table_spec_hyperparameters(const struct table_spec *spec,
                                       struct hyperparameters_text *buffer);

#ifdef __cplusplus
}
#endif
#endif
