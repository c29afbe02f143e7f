/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/table_spec_wire.h"

#include <stdio.h>
#include <string.h>

#include "base/spec/home_rules.h"
#include "proto/control.pb-c.h"

enum embtier_err table_spec_from_wire(const struct Embtier__TableSpec *wire,
                                      struct table_spec *ret_spec, struct err_msg *msg)
{
    struct table_spec spec = {
        .rows = wire->rows,
        .dim = wire->dim,
        .dtype = (enum embtier_dtype)wire->dtype,
        .optimizer = (enum embtier_optimizer)wire->optimizer,
        .init = (enum embtier_init)wire->init,
        .init_params = { wire->init_first, wire->init_second },
        .seed = wire->seed,
        .eager = wire->eager,
        .init_version = wire->init_version,
        .rounds_to_nearest = wire->rounds_to_nearest,
        .allows_nonfinite = wire->allows_nonfinite,
        .durability = (enum embtier_durability)wire->durability,
        .home = (enum embtier_home)wire->home,
        .step = wire->step,
    };
    const size_t uuid_bytes = strnlen(wire->uuid, sizeof(spec.uuid));

#define X(name, field, lowest, highest, standard, text)                                            \
    spec.field = wire->field##_given_case ? wire->field : EMBTIER_DEFAULT;
    EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
    table_spec_fill_defaults(&spec);
    if (strlen(wire->name) > EMBTIER_TABLE_NAME_MAX)
        return err_set(msg, EMBTIER_INVALID,
                       "table name has %zu bytes, allowed: 1 to %d; it begins '%.64s'",
                       strlen(wire->name), EMBTIER_TABLE_NAME_MAX, wire->name);
    snprintf(spec.name, sizeof(spec.name), "%s", wire->name);
    table_spec_set_tier(&spec, wire->home_tier);
    if (home_has_hot_rows(spec.home))
        spec.hot_rows = wire->hot_rows;
    memcpy(spec.uuid, wire->uuid, MIN(uuid_bytes, (size_t)TABLE_UUID_CHARS));
    if (uuid_bytes > TABLE_UUID_CHARS)
        spec.uuid[0] = '?'; /* which is refused below */
    TRY(table_spec_check(&spec, msg));
    /* Makes specs with the same meaning equal. */
    for (unsigned i = 0; i < ARRAY_LEN(spec.init_params); i++)
        if (init_param_name(spec.init, i)[0] == '\0')
            spec.init_params[i] = 0;
    *ret_spec = spec;
    return EMBTIER_OK;
}

void table_spec_to_wire(const struct table_spec *spec, struct Embtier__TableSpec *ret_wire)
{
    Embtier__TableSpec wire = EMBTIER__TABLE_SPEC__INIT;

    wire.name = (char *)spec->name;
    wire.rows = spec->rows;
    wire.dim = spec->dim;
    wire.dtype = spec->dtype;
    wire.optimizer = spec->optimizer;
    wire.init = spec->init;
    wire.init_first = spec->init_params[0];
    wire.init_second = spec->init_params[1];
    wire.seed = spec->seed;
    wire.eager = spec->eager;
    wire.init_version = spec->init_version;
#define X(name, field, lowest, highest, standard, text)                                            \
    if (optimizer_has(spec->optimizer, EMBTIER_##name)) {                                          \
        wire.field##_given_case = EMBTIER__TABLE_SPEC__##name##_GIVEN_##name;                      \
        wire.field = spec->field;                                                                  \
    }
    EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
    wire.rounds_to_nearest = spec->rounds_to_nearest;
    wire.allows_nonfinite = spec->allows_nonfinite;
    wire.durability = spec->durability;
    wire.uuid = (char *)spec->uuid;
    wire.home = spec->home;
    wire.home_tier = (char *)spec->home_tier;
    if (home_has_hot_rows(spec->home))
        wire.hot_rows = spec->hot_rows;
    wire.step = spec->step;
    *ret_wire = wire;
}
