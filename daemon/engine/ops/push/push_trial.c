/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/ops/push/push_trial.h"

#include "daemon/engine/sessions/client_bytes.h"
#include "daemon/engine/tables/table.h"
#include "daemon/engine/turns/cost.h"
#include "kernels/cpu/optimizer/finite.h"

/* ---- Bounds ---- */

/* Returns a bound for a row's sum over @pairs gradients of a push's @group. */
static double sum_bound(const struct push *push, const struct ticket_group *group, uint64_t pairs)
{
    double bound = 0;

    for (uint32_t i = 0; i < group->segment_count; i++) {
        const uint32_t s = group->order[i];

        bound = MAX(bound, finite_sum_bound(push->segments[s].greatest,
                                            push->ticket->segments[s].greatest_weight, pairs));
    }
    return bound;
}

static uint32_t longest_run(const struct ticket_group *group, uint64_t *cost)
{
    uint32_t most = 0;

    for (uint32_t run = 0; run < group->run_count; run++)
        most = MAX(most, group->starts[run + 1] - group->starts[run]);
    *cost += div_round_up(group->run_count * sizeof(group->starts[0]), LANE_COST_BYTES);
    return most;
}

/* Returns the group's bound. With @cost, it is by the longest run, and the cost of a look at all
 * runs is added to @cost. Without, it is by the number of ids. */
static double bound_of(const struct push *push, const struct ticket_group *group, uint64_t *cost)
{
    return sum_bound(push, group, cost ? longest_run(group, cost) : group->id_count);
}

/* Returns the bound for a step: the members' bounds, added up. Each of so few additions rounds by
 * 2^-24 at most. */
static double joint_bound(const struct ticket *joint, const struct ticket_group *group,
                          uint64_t *cost)
{
    double bound = 0;

    for (uint32_t i = 0; i < group->segment_count; i++) {
        const struct ticket_source *const source = &joint->sources[group->order[i]];

        bound += bound_of(source->push, source->group, cost);
    }
    return bound * 1.01;
}

_Static_assert(EMBTIER_GROUP_MEMBERS_MAX < 100000, "1.01 covers the rounding of their sum");

static bool is_proven(const struct push *push, uint32_t group, uint64_t *cost)
{
    const struct ticket_group *const of = &push_runs(push)->groups[group];

    return finite_is_proven(&push_group_of(push, group)->optimizer,
                            push->joint ? joint_bound(push->joint, of, cost)
                                        : bound_of(push, of, cost));
}

bool push_trial_plan(struct push *push, uint64_t *cost)
{
    bool tries = false;

    for (uint32_t g = 0; g < push_runs(push)->group_count; g++) {
        struct push_group *const group = (struct push_group *)push_group_of(push, g);

        group->is_tried = group->has_gradients && !group->table->spec.allows_nonfinite &&
                          !is_proven(push, g, NULL) && !is_proven(push, g, cost);
        tries |= group->is_tried;
    }
    return tries;
}

/* ---- Failures ---- */

void push_trial_fail(struct push *push, uint32_t group, uint32_t run)
{
    const uint64_t place = (uint64_t)group << 32 | run;
    uint64_t lowest = atomic_load_explicit(&push->failed, memory_order_relaxed);

    while (place < lowest &&
           !atomic_compare_exchange_weak_explicit(&push->failed, &lowest, place,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

/* In a step, the row has gradients of several members, so no place in one push names the failure.
 * The refusal then has the table and the row's id. Otherwise it has the first gradient of the
 * row. */
static enum embtier_err refuse_failed(const struct push *push, struct refusal *refusal)
{
    const uint64_t place = atomic_load_explicit(&push->failed, memory_order_relaxed);
    const uint32_t g = (uint32_t)(place >> 32);
    const struct ticket_group *const group = &push_runs(push)->groups[g];
    const struct cast_pair *const pair = &group->pairs[group->starts[(uint32_t)place]];
    uint32_t segment;

    if (push->joint)
        return refuse(refusal, EMBTIER_NONFINITE, UINT32_MAX,
                      push_group_of(push, g)->table->table_id, pair->row);
    segment = ticket_segment_of(group, pair->bag);
    return refuse(refusal, EMBTIER_NONFINITE, segment,
                  pair->bag - push->ticket->segments[segment].first_bag, OP_LIMIT_OF_UPDATE);
}

enum embtier_err push_trial_end(struct push *push, struct refusal *ret_refusal)
{
    if (IS_BAD(CHECK_PUSH_ROWS_FINITE, push_trial_has_failed(push)))
        return refuse_failed(push, ret_refusal);
    push_set_stage(push, PUSH_UPDATING);
    push->group = push->run = 0;
    return EMBTIER_OK;
}
