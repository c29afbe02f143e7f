/* SPDX-License-Identifier: Apache-2.0 */
/* placing.h: an assignment of items to places that is being changed.
 *
 * It keeps the load of each GPU and the bytes used in each room. Bytes are exact. Loads are sums of
 * doubles, which placing_reload() makes anew. Thread: any. */
#ifndef EMBTIER_PLACEMENT_SOLVE_PLACING_H
#define EMBTIER_PLACEMENT_SOLVE_PLACING_H

#include "placement/model/instance.h"

#define PLACING_NONE UINT32_MAX

struct placing {
    const struct instance *x; /* borrowed */
    uint32_t *places;         /* item_count; PLACING_NONE for an item that has none yet */
    double *loads_s;          /* gpu_count */
    uint64_t *used_bytes;     /* room_count */
};

/* No item has a place. NO_MEMORY. */
MUST_CHECK enum embtier_err placing_new(const struct instance *x, struct placing **ret_placing);
void placing_free(struct placing *placing);
DEFINE_CLEANUP(struct placing, placing_free)

/* Both are of one instance. */
void placing_copy(struct placing *to, const struct placing *from);
void placing_set(struct placing *placing, const uint32_t *places);
void placing_reload(struct placing *placing);
double placing_largest_s(const struct placing *placing);
bool placing_is_whole(const struct placing *placing); /* all items have a place */
/* A place for each table. All items have one. */
void placing_tables(const struct placing *placing, uint32_t *ret_places);

static inline bool placing_fits(const struct placing *s, uint32_t item, uint32_t place)
{
    const uint32_t room = s->x->room_of_place[place];

    return instance_allows(s->x, item, place) &&
           s->used_bytes[room] + s->x->bytes[item] <= s->x->room_bytes[room];
}

static inline void placing_take(struct placing *s, uint32_t item)
{
    const uint32_t place = s->places[item];

    s->used_bytes[s->x->room_of_place[place]] -= s->x->bytes[item];
    s->loads_s[instance_gpu(s->x, place)] -= instance_time_s(s->x, item, place);
    s->places[item] = PLACING_NONE;
}

static inline void placing_put(struct placing *s, uint32_t item, uint32_t place)
{
    s->used_bytes[s->x->room_of_place[place]] += s->x->bytes[item];
    s->loads_s[instance_gpu(s->x, place)] += instance_time_s(s->x, item, place);
    s->places[item] = place;
}

#endif
