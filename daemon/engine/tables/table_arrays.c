/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/tables/table_arrays.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/spec/array_shape.h"
#include "base/spec/home_rules.h"
#include "base/text/bytes.h"
#include "tiers/array/array_space.h"
#include "tiers/array/row_arrays.h"
#include "tiers/array/row_remap.h"

struct table_arrays {
    pthread_mutex_t lock;
    struct array_tier tiers[TIERS_MAX];
    struct array_space *spaces[TIERS_MAX];
    uint32_t tier_count;
};

enum embtier_err table_arrays_new(const struct array_tier *tiers, uint32_t tier_count,
                                  struct table_arrays **ret_arrays, struct err_msg *msg)
{
    _cleanup_(table_arrays_freep) struct table_arrays *arrays = calloc(1, sizeof(*arrays));

    assert(tier_count <= TIERS_MAX);
    if (!arrays)
        return err_set(msg, EMBTIER_NO_MEMORY, "arrays: out of memory");
    pthread_mutex_init(&arrays->lock, NULL);
    for (uint32_t t = 0; t < tier_count; t++) {
        arrays->tiers[t] = tiers[t];
        arrays->tier_count++;
        if (array_space_new(tiers[t].base, tiers[t].slabs, &arrays->spaces[t]) != EMBTIER_OK)
            return err_set(msg, EMBTIER_NO_MEMORY, "arrays: out of memory");
    }
    *ret_arrays = TAKE(arrays);
    return EMBTIER_OK;
}

void table_arrays_free(struct table_arrays *arrays)
{
    if (!arrays)
        return;
    for (uint32_t t = 0; t < arrays->tier_count; t++)
        array_space_free(arrays->spaces[t]);
    pthread_mutex_destroy(&arrays->lock);
    free(arrays);
}

/* ---- Forms: how the tables of each home lie in the memory of a tier ---- */

struct form {
    const char *text;                                 /* what such a table is */
    const char *as;                                   /* what it needs memory for */
    const char *rows;                                 /* of which there can be too many */
    uint64_t (*bytes)(const struct table_spec *spec); /* 0: too many rows */
    struct row_array *(*make)(void *memory, const struct table_spec *spec);
};

static uint32_t row_bytes_of(const struct table_spec *spec)
{
    return table_spec_weight_bytes(spec) + table_spec_state_bytes(spec);
}

static uint64_t array_bytes(const struct table_spec *spec)
{
    return row_array_memory_bytes(spec->rows, row_bytes_of(spec));
}

static struct row_array *array_make(void *memory, const struct table_spec *spec)
{
    return row_array_new(memory, spec->rows, row_bytes_of(spec));
}

static uint64_t split_bytes(const struct table_spec *spec)
{
    return split_shape_of(spec->hot_rows, row_bytes_of(spec)).bytes;
}

static struct row_array *split_make(void *memory, const struct table_spec *spec)
{
    const struct split_shape shape = split_shape_of(spec->hot_rows, row_bytes_of(spec));
    struct row_array *const array = row_array_new(memory, spec->hot_rows, row_bytes_of(spec));

    row_array_set_remap(array, row_remap_begin((uint8_t *)memory + shape.remap_at, spec->hot_rows));
    return array;
}

static const struct form forms[] = {
    [EMBTIER_HOME_ARRAY] = { "an array", "as an array", "rows", array_bytes, array_make },
    [EMBTIER_HOME_SPLIT] = { "split", "for its hot rows and their remap", "hot rows", split_bytes,
                             split_make },
};

/* Returns NULL for a home that takes no memory for a table. */
static const struct form *form_of(const struct table_spec *spec)
{
    if (!home_has_tier((int)spec->home))
        return NULL;
    assert((size_t)spec->home < ARRAY_LEN(forms) && forms[spec->home].make);
    return &forms[spec->home];
}

/* ---- Refusals: the reason, and the advice for a table that is being made ---- */

struct tiers_text {
    char text[TIERS_MAX * (TIER_NAME_MAX + 3)];
};

static const char *tiers_text(struct tiers_text *buffer, const struct table_arrays *arrays)
{
    size_t length = 0;

    for (uint32_t t = 0; t < arrays->tier_count; t++)
        length += (size_t)snprintf(buffer->text + length, sizeof(buffer->text) - length, "%s%s",
                                   t > 0 ? ", " : "", arrays->tiers[t].name);
    return buffer->text;
}

static enum embtier_err no_such_tier(const struct table_arrays *arrays,
                                     const struct table_spec *spec, const char **ret_advice,
                                     struct err_msg *msg)
{
    struct tiers_text names = { { 0 } };

    *ret_advice = "choose one of these";
    return err_set(msg, EMBTIER_INVALID, "table '%s': there is no tier '%s', only %s", spec->name,
                   spec->home_tier, tiers_text(&names, arrays));
}

static enum embtier_err no_array_memory(const struct table_spec *spec, const char **ret_advice,
                                        struct err_msg *msg)
{
    const char *const home = form_of(spec)->text;

    *ret_advice = "set array_bytes of a tier in the server's configuration, or choose home cache";
    if (spec->home_tier[0] == '\0')
        return err_set(msg, EMBTIER_INVALID,
                       "table '%s' cannot be %s, as no tier keeps memory for arrays", spec->name,
                       home);
    *ret_advice = "set the tier's array_bytes in the server's configuration, choose another tier, "
                  "or home cache";
    return err_set(msg, EMBTIER_INVALID,
                   "table '%s' cannot be %s, as tier '%s' keeps no memory for arrays", spec->name,
                   home, spec->home_tier);
}

/* @tier keeps most of the tiers that @spec may lie in. */
static enum embtier_err no_room(const struct table_arrays *arrays, uint32_t tier,
                                const struct table_spec *spec, uint64_t bytes,
                                const char **ret_advice, struct err_msg *msg)
{
    const char *const as = form_of(spec)->as;
    struct bytes_text wanted, all, left, piece;
    struct array_space_stats stats;

    *ret_advice = "choose home cache";
    if (bytes == 0)
        return err_set(msg, EMBTIER_TOO_LARGE, "table '%s' has too many %s for an array",
                       spec->name, form_of(spec)->rows);
    array_space_stats(arrays->spaces[tier], &stats);
    *ret_advice = "raise its array_bytes, and its bytes by as much, or choose home cache";
    if (bytes > stats.bytes)
        return err_set(msg, EMBTIER_TOO_LARGE,
                       "table '%s' needs %s %s; tier '%s' keeps %s for arrays", spec->name,
                       format_bytes(&wanted, bytes), as, arrays->tiers[tier].name,
                       format_bytes(&all, stats.bytes));
    *ret_advice = "drop a table in an array, raise array_bytes, or choose home cache";
    return err_set(msg, EMBTIER_NO_MEMORY,
                   "table '%s' needs %s in one piece %s; of the %s that tier '%s' keeps "
                   "for arrays, %s are free, the largest piece is %s",
                   spec->name, format_bytes(&wanted, bytes), as, format_bytes(&all, stats.bytes),
                   arrays->tiers[tier].name, format_bytes(&left, stats.free_bytes),
                   format_bytes(&piece, stats.largest_free_bytes));
}

/* ---- Taking and giving ---- */

/* Locked. Takes memory of the first tier that has room, among those that @spec may lie in; or says
 * why there is none. */
static enum embtier_err take_memory(struct table_arrays *arrays, const struct table_spec *spec,
                                    uint64_t bytes, uint32_t *ret_tier, void **ret_memory,
                                    const char **ret_advice, struct err_msg *msg)
{
    uint32_t named = TIERS_MAX, keeps = TIERS_MAX;

    for (uint32_t t = 0; t < arrays->tier_count; t++) {
        enum embtier_err err = EMBTIER_TOO_LARGE;

        if (spec->home_tier[0] != '\0' && strcmp(spec->home_tier, arrays->tiers[t].name) != 0)
            continue;
        named = MIN(named, t);
        if (arrays->tiers[t].slabs == 0)
            continue;
        if (keeps == TIERS_MAX || arrays->tiers[t].slabs > arrays->tiers[keeps].slabs)
            keeps = t;
        if (bytes > 0)
            err = array_space_take(arrays->spaces[t], bytes, ret_memory);
        if (err == EMBTIER_NO_MEMORY)
            return err_set(msg, err, "out of memory");
        *ret_tier = t;
        if (err == EMBTIER_OK)
            return EMBTIER_OK;
    }
    if (named == TIERS_MAX)
        return no_such_tier(arrays, spec, ret_advice, msg);
    return keeps == TIERS_MAX ? no_array_memory(spec, ret_advice, msg)
                              : no_room(arrays, keeps, spec, bytes, ret_advice, msg);
}

/* Returns an advice only for an error that has one. */
static enum embtier_err take(struct table_arrays *arrays, struct table_spec *spec,
                             struct row_array **ret_array, const char **ret_advice,
                             struct err_msg *msg)
{
    const struct form *const form = form_of(spec);
    void *memory = NULL;
    uint32_t tier = 0;
    enum embtier_err err;

    *ret_array = NULL;
    if (!form)
        return EMBTIER_OK;
    pthread_mutex_lock(&arrays->lock);
    err = take_memory(arrays, spec, form->bytes(spec), &tier, &memory, ret_advice, msg);
    pthread_mutex_unlock(&arrays->lock);
    TRY(err);
    snprintf(spec->home_tier, sizeof(spec->home_tier), "%s", arrays->tiers[tier].name);
    *ret_array = form->make(memory, spec);
    return EMBTIER_OK;
}

enum embtier_err table_arrays_take(struct table_arrays *arrays, struct table_spec *spec,
                                   struct row_array **ret_array, struct err_msg *msg)
{
    const char *advice = NULL;
    const enum embtier_err err = take(arrays, spec, ret_array, &advice, msg);

    if (advice)
        err_append(msg, ": %s", advice);
    return err;
}

enum embtier_err table_arrays_take_anywhere(struct table_arrays *arrays, struct table_spec *spec,
                                            struct row_array **ret_array, struct err_msg *msg)
{
    const char *advice = NULL;
    const enum embtier_err err = take(arrays, spec, ret_array, &advice, msg);
    struct table_spec anywhere = *spec;
    struct err_msg why = { { 0 } };

    anywhere.home_tier[0] = '\0';
    if (err != EMBTIER_OK && take(arrays, &anywhere, ret_array, &advice, &why) != EMBTIER_OK)
        return err;
    if (err != EMBTIER_OK)
        *spec = anywhere;
    return EMBTIER_OK;
}

void table_arrays_give(struct table_arrays *arrays, struct row_array *array)
{
    uint32_t t = 0;

    if (!array)
        return;
    pthread_mutex_lock(&arrays->lock);
    while (t < arrays->tier_count && !array_space_has(arrays->spaces[t], array))
        t++;
    assert(t < arrays->tier_count);
    array_space_give(arrays->spaces[t], array);
    pthread_mutex_unlock(&arrays->lock);
}

uint32_t table_arrays_find(const struct table_arrays *arrays, const char *tier)
{
    for (uint32_t t = 0; t < arrays->tier_count; t++)
        if (strcmp(tier, arrays->tiers[t].name) == 0)
            return t;
    return TIERS_MAX;
}

uint64_t table_arrays_needed_bytes(const struct table_spec *spec)
{
    const struct form *const form = form_of(spec);

    return form ? form->bytes(spec) : 0;
}

void table_arrays_stats(struct table_arrays *arrays, uint32_t tier,
                        struct array_space_stats *ret_stats)
{
    assert(tier < arrays->tier_count);
    pthread_mutex_lock(&arrays->lock);
    array_space_stats(arrays->spaces[tier], ret_stats);
    pthread_mutex_unlock(&arrays->lock);
}
