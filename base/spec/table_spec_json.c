/* SPDX-License-Identifier: Apache-2.0 */
#include "base/spec/table_spec_json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *json_from_u64(uint64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRIu64, value);
    return json_string(text);
}

bool json_to_u64(const json_t *json, uint64_t *ret_value)
{
    const char *text = json_string_value(json);
    unsigned long long value;
    char *end;

    if (!text || text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0')
        return false;
    *ret_value = value;
    return true;
}

bool json_to_u32(const json_t *json, uint32_t *ret_value)
{
    if (!json_is_integer(json) || json_integer_value(json) < 0 ||
        json_integer_value(json) > UINT32_MAX)
        return false;
    *ret_value = (uint32_t)json_integer_value(json);
    return true;
}

static json_t *hyperparameters_to_json(const struct table_spec *spec)
{
    json_t *json = json_object();
    bool complete = json != NULL;

#define X(name, field, lowest, highest, standard, text)                                            \
    if (complete && optimizer_has(spec->optimizer, EMBTIER_##name))                                \
        complete = json_object_set_new(json, #field, json_real(spec->field)) == 0;
    EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
    if (complete)
        return json;
    json_decref(json);
    return NULL;
}

/* Adds the hot rows, which few tables have. */
static json_t *with_hot_rows(json_t *json, const struct table_spec *spec)
{
    if (!json || spec->hot_rows == 0 ||
        (json_object_set_new(json, "hot_rows", json_from_u64(spec->hot_rows)) == 0 &&
         json_object_set_new(json, "hot_sum", json_from_u64(spec->hot_sum)) == 0))
        return json;
    json_decref(json);
    return NULL;
}

json_t *table_spec_to_json(const struct table_spec *spec)
{
    json_t *const json = json_pack(
        "{s:s, s:o, s:I, s:s, s:s, s:s, s:[f, f], s:o, s:b, s:I, s:o, s:b, s:b, s:s, "
        "s:s, s:o, s:s, s:s}",
        "name", spec->name, "rows", json_from_u64(spec->rows), "dim", (json_int_t)spec->dim,
        "dtype", dtype_word(spec->dtype), "optimizer", optimizer_word(spec->optimizer), "init",
        init_word(spec->init), "init_params", spec->init_params[0], spec->init_params[1], "seed",
        json_from_u64(spec->seed), "eager", (int)spec->eager, "init_version",
        (json_int_t)spec->init_version, "hyperparameters", hyperparameters_to_json(spec),
        "rounds_to_nearest", (int)spec->rounds_to_nearest, "allows_nonfinite",
        (int)spec->allows_nonfinite, "durability", durability_word(spec->durability), "uuid",
        spec->uuid, "step", json_from_u64(spec->step), "home", home_word(spec->home), "home_tier",
        spec->home_tier);

    return with_hot_rows(json, spec);
}

static bool words_from_json(const json_t *json, struct table_spec *spec)
{
    const char *const name = json_string_value(json_object_get(json, "name"));
    const char *const dtype = json_string_value(json_object_get(json, "dtype"));
    const char *const optimizer = json_string_value(json_object_get(json, "optimizer"));
    const char *const init = json_string_value(json_object_get(json, "init"));

    if (!name || strlen(name) > EMBTIER_TABLE_NAME_MAX || !dtype || !optimizer || !init)
        return false;
    memcpy(spec->name, name, strlen(name) + 1);
    spec->dtype = (enum embtier_dtype)dtype_parse(dtype);
    spec->optimizer = (enum embtier_optimizer)optimizer_parse(optimizer);
    spec->init = (enum embtier_init)init_parse(init);
    return true; /* unknown words are -1, which table_spec_check() refuses */
}

/* Missing hyperparameters get their defaults: version 1 had none, and a later version may add one
 * to an optimizer. */
static bool update_from_json(const json_t *json, uint32_t version, struct table_spec *spec)
{
    const json_t *const given = json_object_get(json, "hyperparameters");
    const json_t *const nearest = json_object_get(json, "rounds_to_nearest");
    const json_t *const nonfinite = json_object_get(json, "allows_nonfinite");
    size_t known = 0;

    if (version > 1 &&
        (!json_is_object(given) || !json_is_boolean(nearest) || !json_is_boolean(nonfinite)))
        return false;
#define X(name, field, lowest, highest, standard, text)                                            \
    const json_t *const field = json_object_get(given, #field);                                    \
    if (field && !json_is_number(field))                                                           \
        return false;                                                                              \
    spec->field = field ? json_number_value(field) : EMBTIER_DEFAULT;                              \
    known += field != NULL;
    EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
    spec->rounds_to_nearest = json_is_true(nearest);
    spec->allows_nonfinite = json_is_true(nonfinite);
    table_spec_fill_defaults(spec);
    return known == json_object_size(given); /* every name is known */
}

/* Before version 3 every table was `replay` and its JSON had no durability. */
static bool durability_from_json(const json_t *json, uint32_t version, struct table_spec *spec)
{
    const char *const word = json_string_value(json_object_get(json, "durability"));

    spec->durability = EMBTIER_DURABILITY_REPLAY;
    if (version < 3)
        return !word;
    if (word)
        spec->durability = (enum embtier_durability)durability_parse(word);
    return word != NULL; /* an unknown word is -1, which table_spec_check() refuses */
}

/* Older tables have no home in their JSON, and are cached. */
static bool home_from_json(const json_t *json, struct table_spec *spec)
{
    const json_t *const home = json_object_get(json, "home");
    const json_t *const tier = json_object_get(json, "home_tier");
    const json_t *const hot_rows = json_object_get(json, "hot_rows");
    const char *const word = json_string_value(home);
    const char *const tier_name = json_string_value(tier);

    spec->home = word ? (enum embtier_home)home_parse(word) : EMBTIER_HOME_CACHE;
    if ((home && !word) || (tier && !tier_name)) /* an unknown word is -1, which is refused later */
        return false;
    table_spec_set_tier(spec, tier_name);
    return !hot_rows || (json_to_u64(hot_rows, &spec->hot_rows) &&
                         json_to_u64(json_object_get(json, "hot_sum"), &spec->hot_sum));
}

/* Older tables have neither. */
static bool training_from_json(const json_t *json, struct table_spec *spec)
{
    const json_t *const uuid = json_object_get(json, "uuid");
    const json_t *const step = json_object_get(json, "step");
    const char *const digits = uuid ? json_string_value(uuid) : "";

    if (!digits || strlen(digits) > TABLE_UUID_CHARS)
        return false;
    memcpy(spec->uuid, digits, strlen(digits) + 1);
    return !step || json_to_u64(step, &spec->step);
}

bool table_spec_from_json(const json_t *json, uint32_t version, struct table_spec *ret_spec)
{
    const json_t *const params = json_object_get(json, "init_params");
    const json_t *const eager = json_object_get(json, "eager");
    struct table_spec spec = { 0 };

    if (!words_from_json(json, &spec) || json_array_size(params) != 2 || !json_is_boolean(eager))
        return false;
    for (size_t i = 0; i < 2; i++) {
        if (!json_is_number(json_array_get(params, i)))
            return false;
        spec.init_params[i] = json_number_value(json_array_get(params, i));
    }
    spec.eager = json_is_true(eager);
    if (!json_to_u32(json_object_get(json, "dim"), &spec.dim) ||
        !json_to_u32(json_object_get(json, "init_version"), &spec.init_version) ||
        !json_to_u64(json_object_get(json, "rows"), &spec.rows) ||
        !json_to_u64(json_object_get(json, "seed"), &spec.seed) ||
        !durability_from_json(json, version, &spec) || !training_from_json(json, &spec) ||
        !home_from_json(json, &spec) ||
        !update_from_json(json, version, &spec)) /* last, because it needs the optimizer */
        return false;
    *ret_spec = spec;
    return true;
}
