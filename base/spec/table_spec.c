/* SPDX-License-Identifier: Apache-2.0 */
#include "base/spec/table_spec.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/spec/home_rules.h"

struct word {
    int number;
    const char *text;
};

static const struct word dtype_words[] = {
#define X(name, number, word, bytes) { number, word },
    EMBTIER_DTYPE_TABLE(X)
#undef X
};

static const struct word optimizer_words[] = {
#define X(name, number, word, per_weight, per_row, hyperparameters, eps, decay, text)              \
    { number, word },
    EMBTIER_OPTIMIZER_TABLE(X)
#undef X
};

static const struct word init_words[] = {
#define X(name, number, word, first, second, text) { number, word },
    EMBTIER_INIT_TABLE(X)
#undef X
};

static const struct word durability_words[] = {
#define X(name, number, word, text) { number, word },
    EMBTIER_DURABILITY_TABLE(X)
#undef X
};

static const struct word durability_texts[] = {
#define X(name, number, word, text) { number, text },
    EMBTIER_DURABILITY_TABLE(X)
#undef X
};

static const struct word home_words[] = {
#define X(name, number, word, text) { number, word },
    EMBTIER_HOME_TABLE(X)
#undef X
};

static const struct {
    const char *word;
    double lowest;
    double highest;
    double standard;
} hyperparameters[HYPERPARAMETER_COUNT] = {
#define X(name, field, lowest, highest, standard, text) { #field, lowest, highest, standard },
    EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
};

static const char *const rounding_words[] = { [false] = "stochastic", [true] = "nearest" };

static int word_parse(const struct word *words, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(words[i].text, text) == 0)
            return words[i].number;
    return -1;
}

static const char *word_text(const struct word *words, size_t count, int number)
{
    for (size_t i = 0; i < count; i++)
        if (words[i].number == number)
            return words[i].text;
    return NULL;
}

int dtype_parse(const char *word)
{
    return word_parse(dtype_words, ARRAY_LEN(dtype_words), word);
}

int optimizer_parse(const char *word)
{
    return word_parse(optimizer_words, ARRAY_LEN(optimizer_words), word);
}

int init_parse(const char *word)
{
    return word_parse(init_words, ARRAY_LEN(init_words), word);
}

int durability_parse(const char *word)
{
    return word_parse(durability_words, ARRAY_LEN(durability_words), word);
}

int home_parse(const char *word)
{
    return word_parse(home_words, ARRAY_LEN(home_words), word);
}

const char *dtype_word(int dtype)
{
    return word_text(dtype_words, ARRAY_LEN(dtype_words), dtype);
}

const char *optimizer_word(int optimizer)
{
    return word_text(optimizer_words, ARRAY_LEN(optimizer_words), optimizer);
}

const char *init_word(int init)
{
    return word_text(init_words, ARRAY_LEN(init_words), init);
}

const char *durability_word(int durability)
{
    return word_text(durability_words, ARRAY_LEN(durability_words), durability);
}

const char *home_word(int home)
{
    return word_text(home_words, ARRAY_LEN(home_words), home);
}

const char *durability_text(int durability)
{
    return word_text(durability_texts, ARRAY_LEN(durability_texts), durability);
}

const char *init_param_name(int init, unsigned index)
{
    switch (init) {
#define X(name, number, word, first, second, text)                                                 \
    case number:                                                                                   \
        return index == 0 ? first : second;
        EMBTIER_INIT_TABLE(X)
#undef X
    }
    return "";
}

const char *hyperparameter_word(int hyperparameter)
{
    return hyperparameter >= 0 && hyperparameter < HYPERPARAMETER_COUNT
               ? hyperparameters[hyperparameter].word
               : NULL;
}

int rounding_parse(const char *word)
{
    for (size_t i = 0; i < ARRAY_LEN(rounding_words); i++)
        if (strcmp(rounding_words[i], word) == 0)
            return (int)i;
    return -1;
}

const char *rounding_word(bool to_nearest)
{
    return rounding_words[to_nearest];
}

uint32_t dtype_bytes(enum embtier_dtype dtype)
{
    switch (dtype) {
#define X(name, number, word, bytes)                                                               \
    case number:                                                                                   \
        return bytes;
        EMBTIER_DTYPE_TABLE(X)
#undef X
    }
    return 0;
}

uint32_t table_spec_weight_bytes(const struct table_spec *spec)
{
    return spec->dim * dtype_bytes(spec->dtype);
}

uint32_t table_spec_state_bytes(const struct table_spec *spec)
{
    const uint32_t dim = spec->dim;

    (void)dim;
    switch (spec->optimizer) {
#define X(name, number, word, per_weight, per_row, hyperparameters, eps, decay, text)              \
    case number:                                                                                   \
        return (uint32_t)sizeof(float) * ((per_weight)*dim + (per_row));
        EMBTIER_OPTIMIZER_TABLE(X)
#undef X
    }
    return 0;
}

/* ---- Hyperparameters ---- */

bool optimizer_has(int optimizer, int hyperparameter)
{
    const unsigned every = 1U << EMBTIER_WEIGHT_DECAY | 1U << EMBTIER_CLIP_NORM;
    unsigned has = 0;

    switch (optimizer) {
#define X(name, number, word, per_weight, per_row, hyperparameters, eps, decay, text)              \
    case number:                                                                                   \
        has = hyperparameters | (EMBTIER_OPTIMIZER_##name != EMBTIER_OPTIMIZER_NONE ? every : 0);  \
        break;
        EMBTIER_OPTIMIZER_TABLE(X)
#undef X
    }
    return (has >> hyperparameter & 1) != 0;
}

double optimizer_default(int optimizer, int hyperparameter)
{
    if (!optimizer_has(optimizer, hyperparameter))
        return 0;
    if (hyperparameter != EMBTIER_EPS && hyperparameter != EMBTIER_WEIGHT_DECAY)
        return hyperparameters[hyperparameter].standard;
    switch (optimizer) {
#define X(name, number, word, per_weight, per_row, hyperparameters, eps, decay, text)              \
    case number:                                                                                   \
        return hyperparameter == EMBTIER_EPS ? eps : decay;
        EMBTIER_OPTIMIZER_TABLE(X)
#undef X
    }
    return 0;
}

void table_spec_fill_defaults(struct table_spec *spec)
{
#define X(name, field, lowest, highest, standard, text)                                            \
    if (spec->field == EMBTIER_DEFAULT)                                                            \
        spec->field = optimizer_default(spec->optimizer, EMBTIER_##name);
    EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
}

const char *hyperparameters_text(struct hyperparameters_text *buffer, int optimizer,
                                 const double *values)
{
    size_t used = 0;

    buffer->text[0] = '\0';
    for (int h = 0; h < HYPERPARAMETER_COUNT; h++) {
        if (!optimizer_has(optimizer, h))
            continue;
        used += (size_t)snprintf(buffer->text + used, sizeof(buffer->text) - used, "%s%s",
                                 used > 0 ? ", " : "", hyperparameters[h].word);
        if (values) /* 15 digits return a number as the user wrote it */
            used += (size_t)snprintf(buffer->text + used, sizeof(buffer->text) - used, " %.15g",
                                     values[h]);
    }
    return buffer->text;
}

const char *optimizer_defaults_text(struct hyperparameters_text *buffer, int optimizer)
{
    double values[HYPERPARAMETER_COUNT];

    for (int h = 0; h < HYPERPARAMETER_COUNT; h++)
        values[h] = optimizer_default(optimizer, h);
    return hyperparameters_text(buffer, optimizer, values);
}

const char *table_spec_hyperparameters(const struct table_spec *spec,
                                       struct hyperparameters_text *buffer)
{
    const double values[] = {
#define X(name, field, lowest, highest, standard, text) spec->field,
        EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
    };

    return hyperparameters_text(buffer, spec->optimizer, values);
}

static enum embtier_err hyperparameter_check(int optimizer, int h, double value,
                                             struct err_msg *msg)
{
    const char *const word = hyperparameters[h].word;
    struct hyperparameters_text has;

    if (!optimizer_has(optimizer, h) && value != 0) {
        hyperparameters_text(&has, optimizer, NULL);
        return err_set(msg, EMBTIER_INVALID, "optimizer %s has no %s; it has %s",
                       optimizer_word(optimizer), word,
                       has.text[0] ? has.text : "no hyperparameters");
    }
    if (!isfinite(value))
        return err_set(msg, EMBTIER_INVALID, "%s must be a finite number", word);
    if (value < hyperparameters[h].lowest || value > hyperparameters[h].highest)
        return err_set(msg, EMBTIER_INVALID, "%s %.15g is out of range, allowed: %.15g to %.15g",
                       word, value, hyperparameters[h].lowest, hyperparameters[h].highest);
    return EMBTIER_OK;
}

static enum embtier_err hyperparameters_check(const struct table_spec *spec, struct err_msg *msg)
{
#define X(name, field, lowest, highest, standard, text)                                            \
    TRY(hyperparameter_check(spec->optimizer, EMBTIER_##name, spec->field, msg));
    EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
    return EMBTIER_OK;
}

/* ---- Checks ---- */

bool table_name_is_valid(const char *name)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
    const size_t len = strnlen(name, EMBTIER_TABLE_NAME_MAX + 1);

    return len > 0 && len <= EMBTIER_TABLE_NAME_MAX && name[0] != '.' && name[0] != '-' &&
           strspn(name, allowed) == len;
}

bool tier_name_is_valid(const char *name)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    const size_t len = strnlen(name, TIER_NAME_MAX + 1);

    return len > 0 && len <= TIER_NAME_MAX && strspn(name, allowed) == len;
}

void table_spec_set_tier(struct table_spec *spec, const char *tier)
{
    if ((size_t)snprintf(spec->home_tier, sizeof(spec->home_tier), "%s", tier ? tier : "") >=
        sizeof(spec->home_tier))
        snprintf(spec->home_tier, sizeof(spec->home_tier), "?"); /* which the check refuses */
}

/* Returns the greatest finite number of the format. */
static double dtype_max(enum embtier_dtype dtype)
{
    switch (dtype) {
    case EMBTIER_DTYPE_F16:
        return 65504.0;
    case EMBTIER_DTYPE_BF16:
        return 0x1.fep127;
    case EMBTIER_DTYPE_F32:
        break;
    }
    return FLT_MAX;
}

static enum embtier_err init_check(const struct table_spec *spec, struct err_msg *msg)
{
    if (!init_word(spec->init))
        return err_set(msg, EMBTIER_INVALID, "init %d is not known", (int)spec->init);
    for (unsigned i = 0; i < 2; i++) {
        const char *name = init_param_name(spec->init, i);

        if (name[0] != '\0' && !isfinite(spec->init_params[i]))
            return err_set(msg, EMBTIER_INVALID, "init %s: %s must be a finite number",
                           init_word(spec->init), name);
    }
    if (spec->init == EMBTIER_INIT_UNIFORM && !(spec->init_params[0] <= spec->init_params[1]))
        return err_set(
            msg, EMBTIER_INVALID,
            "init uniform: low %g is above high %g; allowed: a low that is at most the high",
            spec->init_params[0], spec->init_params[1]);
    if (spec->init == EMBTIER_INIT_NORMAL && spec->init_params[1] < 0)
        return err_set(msg, EMBTIER_INVALID,
                       "init normal: stddev %g is negative; allowed: 0 or more",
                       spec->init_params[1]);
    return EMBTIER_OK;
}

void table_spec_set_cached(struct table_spec *spec)
{
    spec->home = EMBTIER_HOME_CACHE;
    spec->home_tier[0] = '\0';
}

bool table_uuid_is_valid(const char *uuid)
{
    const size_t count = strspn(uuid, "0123456789abcdef");

    return uuid[count] == '\0' && (count == 0 || count == TABLE_UUID_CHARS);
}

enum embtier_err table_spec_check(const struct table_spec *spec, struct err_msg *msg)
{
    if (!table_name_is_valid(spec->name))
        return err_set(msg, EMBTIER_INVALID,
                       "table name must be 1 to %d of A-Z a-z 0-9 _ . - and start with neither . "
                       "nor -, not '%.64s'",
                       EMBTIER_TABLE_NAME_MAX, spec->name);
    if (spec->dim < 1 || spec->dim > EMBTIER_DIM_MAX)
        return err_set(msg, EMBTIER_INVALID, "dim %u is out of range, allowed: 1 to %d", spec->dim,
                       EMBTIER_DIM_MAX);
    if (!dtype_word(spec->dtype))
        return err_set(msg, EMBTIER_INVALID, "dtype %d is not known", (int)spec->dtype);
    if (!optimizer_word(spec->optimizer))
        return err_set(msg, EMBTIER_INVALID, "optimizer %d is not known", (int)spec->optimizer);
    TRY(hyperparameters_check(spec, msg));
    if (!durability_word(spec->durability))
        return err_set(msg, EMBTIER_INVALID, "durability %d is not known", (int)spec->durability);
    if (!home_word(spec->home))
        return err_set(msg, EMBTIER_INVALID, "home %d is not known", (int)spec->home);
    if (home_needs_rows(spec->home) && spec->rows == EMBTIER_UNBOUNDED)
        return err_set(msg, EMBTIER_INVALID,
                       "table '%s': home %s needs a table with a number of rows: it has a place "
                       "for each row, so give rows, or choose home cache",
                       spec->name, home_word(spec->home));
    if (home_has_hot_rows(spec->home) && spec->hot_rows == 0)
        return err_set(msg, EMBTIER_INVALID,
                       "table '%s': home %s needs hot rows, at least one: name them in a move of "
                       "the table, or choose home cache",
                       spec->name, home_word(spec->home));
    if (!tier_name_is_valid(spec->home_tier) && spec->home_tier[0] != '\0')
        return err_set(msg, EMBTIER_INVALID,
                       "table '%s': a tier's name has 1 to %d of A-Z a-z 0-9 _ and -, not '%.31s'",
                       spec->name, TIER_NAME_MAX, spec->home_tier);
    if (!home_has_tier(spec->home) && spec->home_tier[0] != '\0')
        return err_set(msg, EMBTIER_INVALID,
                       "table '%s': home %s has no tier of its own: leave the tier out, or choose "
                       "home array",
                       spec->name, home_word(spec->home));
    if (spec->eager && spec->rows == EMBTIER_UNBOUNDED)
        return err_set(msg, EMBTIER_INVALID, "an unbounded table cannot be initialised eagerly");
    if (!table_uuid_is_valid(spec->uuid))
        return err_set(msg, EMBTIER_INVALID, "a table's uuid has %d hex digits, or none",
                       TABLE_UUID_CHARS);
    if (spec->step > EMBTIER_STEP_MAX)
        return err_set(msg, EMBTIER_INVALID, "step %" PRIu64 " is out of range, allowed: 0 to %llu",
                       spec->step, (unsigned long long)EMBTIER_STEP_MAX);
    return init_check(spec, msg);
}

/* Updates are computed in f32, where an eps of 0 divides by 0 and a clip_norm of 0 does not
 * clip. */
static enum embtier_err check_nonzero(const struct table_spec *spec, struct err_msg *msg)
{
    const double smallest = 0x1p-149;

    if (optimizer_has((int)spec->optimizer, EMBTIER_EPS) && (float)spec->eps <= 0)
        return err_set(msg, EMBTIER_INVALID,
                       "eps %.15g is 0 in f32, the precision of updates: %s divides by it; "
                       "allowed: %.2g to %.15g",
                       spec->eps, optimizer_word((int)spec->optimizer), smallest,
                       hyperparameters[EMBTIER_EPS].highest);
    if (spec->clip_norm > 0 && (float)spec->clip_norm <= 0)
        return err_set(msg, EMBTIER_INVALID,
                       "clip_norm %.15g is 0 in f32, the precision of updates, and 0 does not "
                       "clip; allowed: 0, and %.2g to %.15g",
                       spec->clip_norm, smallest, hyperparameters[EMBTIER_CLIP_NORM].highest);
    return EMBTIER_OK;
}

enum embtier_err table_spec_check_new(const struct table_spec *spec, struct err_msg *msg)
{
    TRY(table_spec_check_loaded(spec, msg));
    return check_nonzero(spec, msg);
}

enum embtier_err table_spec_check_loaded(const struct table_spec *spec, struct err_msg *msg)
{
    TRY(table_spec_check(spec, msg));
    if (home_has_hot_rows(spec->home))
        return err_set(msg, EMBTIER_INVALID,
                       "table '%s': a new table cannot have home %s: choose another home, and "
                       "move the table when it is made",
                       spec->name, home_word(spec->home));
    for (unsigned i = 0; i < 2; i++) {
        const char *name = init_param_name(spec->init, i);

        if (name[0] != '\0' && fabs(spec->init_params[i]) > dtype_max(spec->dtype))
            return err_set(msg, EMBTIER_INVALID, "init %s: %s %g is more than %s holds (%g)",
                           init_word(spec->init), name, spec->init_params[i],
                           dtype_word(spec->dtype), dtype_max(spec->dtype));
    }
    return EMBTIER_OK;
}
