/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/solve/placing.h"

#include <stdlib.h>
#include <string.h>

void placing_free(struct placing *placing)
{
    if (!placing)
        return;
    free(placing->places);
    free(placing->loads_s);
    free(placing->used_bytes);
    free(placing);
}

enum embtier_err placing_new(const struct instance *x, struct placing **ret_placing)
{
    _cleanup_(placing_freep) struct placing *s = calloc(1, sizeof(*s));

    if (!s)
        return EMBTIER_NO_MEMORY;
    s->x = x;
    s->places = malloc(x->item_count * sizeof(*s->places));
    s->loads_s = calloc(x->gpu_count, sizeof(*s->loads_s));
    s->used_bytes = calloc(x->room_count, sizeof(*s->used_bytes));
    if (!s->places || !s->loads_s || !s->used_bytes)
        return EMBTIER_NO_MEMORY;
    memset(s->places, 0xff, x->item_count * sizeof(*s->places));
    *ret_placing = TAKE(s);
    return EMBTIER_OK;
}

void placing_copy(struct placing *to, const struct placing *from)
{
    memcpy(to->places, from->places, to->x->item_count * sizeof(*to->places));
    memcpy(to->loads_s, from->loads_s, to->x->gpu_count * sizeof(*to->loads_s));
    memcpy(to->used_bytes, from->used_bytes, to->x->room_count * sizeof(*to->used_bytes));
}

void placing_set(struct placing *placing, const uint32_t *places)
{
    memcpy(placing->places, places, placing->x->item_count * sizeof(*places));
    placing_reload(placing);
}

void placing_reload(struct placing *placing)
{
    const struct instance *const x = placing->x;

    memset(placing->loads_s, 0, x->gpu_count * sizeof(*placing->loads_s));
    memset(placing->used_bytes, 0, x->room_count * sizeof(*placing->used_bytes));
    for (uint32_t i = 0; i < x->item_count; i++)
        if (placing->places[i] != PLACING_NONE)
            placing_put(placing, i, placing->places[i]);
}

double placing_largest_s(const struct placing *placing)
{
    double largest_s = 0;

    for (uint32_t g = 0; g < placing->x->gpu_count; g++)
        largest_s = MAX(largest_s, placing->loads_s[g]);
    return largest_s;
}

bool placing_is_whole(const struct placing *placing)
{
    for (uint32_t i = 0; i < placing->x->item_count; i++)
        if (placing->places[i] == PLACING_NONE)
            return false;
    return true;
}

void placing_tables(const struct placing *placing, uint32_t *ret_places)
{
    for (uint32_t i = 0; i < placing->x->model->table_count; i++)
        ret_places[i] = placing->places[placing->x->item_of_table[i]];
}
