/* SPDX-License-Identifier: Apache-2.0 */
/* profile_fixture.h: lookups for a profile. Include cmocka.h before it. */
#ifndef EMBTIER_TESTS_UNIT_PLACEMENT_PROFILE_FIXTURE_H
#define EMBTIER_TESTS_UNIT_PLACEMENT_PROFILE_FIXTURE_H

#include "placement/profile/profile.h"

/* Adds one bag of @count ids. */
static inline void add_bag(struct profile *profile, uint64_t batch, uint32_t table,
                           const uint64_t *ids, uint32_t count)
{
    const uint32_t bag_ends[] = { count };
    const struct trace_lookups lookups = { .batch = batch,
                                           .table = table,
                                           .bag_count = 1,
                                           .id_count = count,
                                           .bag_ends = bag_ends,
                                           .ids = ids };

    assert_int_equal(profile_add(profile, &lookups), EMBTIER_OK);
}

#endif
