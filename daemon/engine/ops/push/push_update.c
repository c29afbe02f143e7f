/* SPDX-License-Identifier: Apache-2.0 */
/* The work of pushes on rows: reduces gradients to one for each row, and runs the optimizer. In a
 * group's step, each member's gradients are reduced by themselves, and then added up (group.h). A
 * trial (push_trial.h) does the same with copies of rows. */
#include <string.h>

#include "daemon/engine/ops/groups/group.h"
#include "daemon/engine/ops/push/push.h"
#include "daemon/engine/ops/push/push_trial.h"
#include "daemon/engine/ops/segment_copies.h"
#include "daemon/engine/sessions/client_bytes.h"
#include "daemon/engine/tables/table.h"
#include "kernels/cpu/optimizer/finite.h"
#include "kernels/cpu/reduce/reduce.h"

_Static_assert(EMBTIER_DIM_MAX * sizeof(float) <= ROWS_GRADIENT_BYTES / 4,
               "two of one row's gradients fit in a half");
/* Adam's rows are the longest. */
_Static_assert(3 * EMBTIER_DIM_MAX * sizeof(float) <= ROWS_GRADIENT_BYTES / 2,
               "a row and its state fit in the other");

/* ---- A step's ticket ---- */

static struct push_group *source_group(const struct ticket_source *source)
{
    return &source->push->groups[source->group - source->push->ticket->groups];
}

const struct push_group *push_group_of(const struct push *push, uint32_t group)
{
    const struct ticket *const joint = push->joint;

    return joint ? source_group(&joint->sources[joint->groups[group].order[0]])
                 : &push->groups[group];
}

#define SOURCES_MAX (OP_SEGMENTS_MAX * sizeof(struct op_segment) / sizeof(struct ticket_source))

/* Collects the groups of all members that have gradients. */
static enum embtier_err collect_sources(const struct push *leader, struct ticket_source *sources,
                                        uint32_t *ret_count, struct refusal *refusal)
{
    uint32_t count = 0;
    uint64_t runs = 0;

    for (uint32_t m = 0; m < group_size(leader->member); m++) {
        const struct push *const push = group_push(leader->member, m);

        for (uint32_t g = 0; g < push->ticket->group_count; g++) {
            if (!push->groups[g].has_gradients)
                continue;
            if (count == SOURCES_MAX)
                return refuse(refusal, EMBTIER_TOO_LARGE, UINT32_MAX, count + 1, SOURCES_MAX);
            sources[count++] = (struct ticket_source){ push, &push->ticket->groups[g] };
            runs += push->ticket->groups[g].run_count;
        }
    }
    *ret_count = count;
    if (runs > UINT32_MAX)
        return refuse(refusal, EMBTIER_TOO_LARGE, UINT32_MAX, runs, UINT32_MAX);
    return EMBTIER_OK;
}

static bool is_other_rate(const struct push_group *a, const struct push_group *b)
{
    return a->learning_rate < b->learning_rate || a->learning_rate > b->learning_rate;
}

/* Checks that members agree on a table's learning rate: one optimizer runs for all of them. */
static enum embtier_err check_rates(const struct request_rules *rules,
                                    const struct ticket_source *sources, uint32_t count,
                                    struct refusal *refusal)
{
    enum embtier_err err = EMBTIER_OK;

    for (uint32_t s = 0; s < count; s++) {
        const struct push_group *const group = source_group(&sources[s]);
        uint32_t *const first = &rules->table_marks[group->table->index];

        if (*first == 0)
            *first = s + 1;
        else if (IS_BAD(CHECK_STEP_SAME_RATE,
                        is_other_rate(group, source_group(&sources[*first - 1]))))
            err = EMBTIER_MISMATCH;
        if (err != EMBTIER_OK) {
            refuse(refusal, err, UINT32_MAX, group->table->table_id, 0);
            break;
        }
    }
    for (uint32_t s = 0; s < count; s++)
        rules->table_marks[source_group(&sources[s])->table->index] = 0;
    return err;
}

static struct ticket_part part_of(const void *context, uint32_t s)
{
    const struct ticket_source *const source = (const struct ticket_source *)context + s;

    return (struct ticket_part){ .table = source_group(source)->table,
                                 .mode = EMBTIER_POOL_SUM,
                                 .id_count = source->group->run_count,
                                 .source = *source };
}

static enum embtier_err enter_tables(const struct request_rules *rules, struct push *push,
                                     struct refusal *refusal)
{
    for (uint32_t s = 0; s < push->segment_count; s++) {
        const enum embtier_err err =
            segment_table_enter(rules, UINT32_MAX, ticket_group_of(push->ticket, s)->table,
                                &push->segments[s].table, refusal);

        if (err == EMBTIER_OK)
            continue;
        while (s-- > 0)
            table_leave(push->segments[s].table);
        return err;
    }
    push->has_tables = true;
    return EMBTIER_OK;
}

enum embtier_err push_join(const struct request_rules *rules, struct push *leader,
                           struct refusal *ret_refusal)
{
    struct ticket_source *const sources = (struct ticket_source *)rules->scratch;
    uint32_t count;

    for (uint32_t m = 0; m < group_size(leader->member); m++)
        TRY(enter_tables(rules, group_push(leader->member, m), ret_refusal));
    TRY(collect_sources(leader, sources, &count, ret_refusal));
    TRY(check_rates(rules, sources, count, ret_refusal));
    return ticket_new(rules, leader->session, TICKET_OF_STEP, count, part_of, sources,
                      &leader->joint, ret_refusal);
}

/* ---- Updating ---- */

static const struct push_slice *slice_of(const struct request *request, uint32_t segment)
{
    return &CONTAINER_OF(request, struct push_wave, request)->slices[segment];
}

uint64_t push_pair_count(const struct request *request, uint32_t segment, uint32_t position,
                         uint32_t count)
{
    const struct push_slice *const slice = slice_of(request, segment);
    const struct ticket *const runs = push_runs(push_wave_of(request)->push);

    return push_run_pairs(runs, &runs->groups[slice->group], slice->first_run + position, count);
}

uint64_t push_run_pairs(const struct ticket *runs, const struct ticket_group *group, uint32_t run,
                        uint32_t count)
{
    const uint32_t first = group->starts[run];
    const uint32_t end = group->starts[run + count];
    uint64_t pairs = 0;

    if (runs->kind != TICKET_OF_STEP)
        return end - first;
    for (uint32_t p = first; p < end; p++) {
        const struct member_run of = member_run_of(&group->pairs[p]);
        const uint32_t *const starts = runs->sources[of.segment].group->starts;

        pairs += starts[of.run + 1] - starts[of.run];
    }
    return pairs;
}

/* Rows that are there, among those that a lane was asked for. */
#define FOUND_MAX 512
struct found {
    uint32_t runs[FOUND_MAX];
    uint64_t ids[FOUND_MAX];
    void *rows[FOUND_MAX];
    uint32_t count;
};

/* Pairs for whose weights a gradient is wanted. */
#define WEIGHTS_MAX 256
struct weights {
    const void *rows[WEIGHTS_MAX];
    const float *bags[WEIGHTS_MAX];
    float divisors[WEIGHTS_MAX];
    float *dest[WEIGHTS_MAX];
    float gradients[WEIGHTS_MAX];
    uint32_t count;
};

static void weights_flush(const struct push_group *group, struct weights *w)
{
    reduce_weight_gradients(group->table->spec.dtype, group->table->spec.dim, w->rows, w->bags,
                            w->divisors, w->count, w->gradients);
    for (uint32_t i = 0; i < w->count; i++)
        *w->dest[i] = w->gradients[i];
    w->count = 0;
}

static void weights_add(const struct push *push, const struct ticket_group *of,
                        const struct cast_pair *pair, const void *row, struct weights *w)
{
    const uint32_t s = ticket_segment_of(of, pair->bag);
    const struct ticket_segment *const segment = &push->ticket->segments[s];
    const float *const gradients = push->segments[s].gradients;
    float *const dest = push->segments[s].weight_gradients;

    if (!dest)
        return;
    w->rows[w->count] = row;
    w->bags[w->count] =
        gradients ? gradients + (size_t)(pair->bag - segment->first_bag) * of->dim : push_zeros;
    w->divisors[w->count] = segment->mode == EMBTIER_POOL_MEAN
                                ? (float)(of->offsets[pair->bag + 1] - of->offsets[pair->bag])
                                : 1.0f;
    w->dest[w->count++] = dest + (pair->position - segment->first_position);
}

/* Writes the gradients of the samples' weights, for the segments that ask for them. They are
 * computed from the rows before the update. */
static void give_weight_gradients(const struct push *push, const struct push_group *group,
                                  const struct ticket_group *of, const struct found *found)
{
    struct weights w = { .count = 0 };

    for (uint32_t i = 0; i < found->count; i++) {
        for (uint32_t p = of->starts[found->runs[i]]; p < of->starts[found->runs[i] + 1]; p++) {
            weights_add(push, of, &of->pairs[p], found->rows[i], &w);
            if (w.count == WEIGHTS_MAX)
                weights_flush(group, &w);
        }
    }
    weights_flush(group, &w);
}

/* Returns the batch that reduces the gradients of one push for the rows found. @dest: for the
 * results. */
static struct reduce_batch batch_of(const struct push *push, const struct ticket_group *of,
                                    const struct found *found, float *dest)
{
    return (struct reduce_batch){ .dim = of->dim,
                                  .bags = push->segments[of->order[0]].gradients,
                                  .bag_places = (const float *const *)of->bag_places,
                                  .bag_count = of->bag_count,
                                  .pairs = of->pairs,
                                  .scales = of->scales,
                                  .winners = of->winners,
                                  .offsets = of->offsets,
                                  .starts = of->starts,
                                  .runs = found->runs,
                                  .run_count = found->count,
                                  .rows = dest };
}

/* The rows that a member has gradients for. */
struct share {
    struct found found;         /* its runs are the member's */
    uint32_t places[FOUND_MAX]; /* index among all rows found */
};

/* Takes the share of segment @s of a step's ticket. @next has the next pair of each row found, and
 * moves past those taken. */
static void take_share(const struct ticket_group *of, uint32_t s, const struct found *found,
                       uint32_t *next, struct share *share)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < found->count; i++) {
        struct member_run member;

        if (next[i] == of->starts[found->runs[i] + 1])
            continue;
        member = member_run_of(&of->pairs[next[i]]);
        if (member.segment != s)
            continue;
        share->found.runs[count] = member.run;
        share->found.rows[count] = found->rows[i];
        share->places[count++] = i;
        next[i]++;
    }
    share->found.count = count;
}

/* Memory for rows' gradients, and for the copy of a row. */
struct room {
    float *sums; /* of rows */
    float *more; /* in a step: those that a member adds */
    void *copy;
    uint32_t rows_max;
};

/* Normally each row is changed right after its gradient has been made. In a step, and for rows that
 * are tried, the gradients of many rows are made first. */
static struct room room_of(float *scratch, bool is_joint, bool is_tried, uint32_t dim)
{
    const uint32_t bytes = is_tried ? ROWS_GRADIENT_BYTES / 4 : ROWS_GRADIENT_BYTES / 2;

    return (struct room){ .sums = scratch,
                          .more = scratch + bytes / sizeof(*scratch),
                          .copy = scratch + ROWS_GRADIENT_BYTES / 2 / sizeof(*scratch),
                          .rows_max = is_joint || is_tried
                                          ? MIN((uint32_t)FOUND_MAX,
                                                bytes / (dim * (uint32_t)sizeof(float)))
                                          : FOUND_MAX };
}

/* Reduces each member's gradients by themselves, and adds them up in the members' order. */
static void reduce_members(const struct push *leader, const struct ticket_group *of,
                           const struct found *found, const struct room *room)
{
    const bool is_update = leader->stage == PUSH_UPDATING;
    uint32_t next[FOUND_MAX];
    struct share share;

    for (uint32_t i = 0; i < found->count; i++)
        next[i] = of->starts[found->runs[i]];
    memset(room->sums, 0, (size_t)found->count * of->dim * sizeof(*room->sums));
    for (uint32_t i = 0; i < of->segment_count; i++) {
        const struct ticket_source *const source = &leader->joint->sources[of->order[i]];
        struct reduce_batch batch;

        take_share(of, of->order[i], found, next, &share);
        if (is_update && source_group(source)->has_weight_gradients)
            give_weight_gradients(source->push, source_group(source), source->group, &share.found);
        batch = batch_of(source->push, source->group, &share.found, room->more);
        reduce_runs(&batch);
        for (uint32_t r = 0; r < share.found.count; r++)
            reduce_add(room->sums + (size_t)share.places[r] * of->dim,
                       room->more + (size_t)r * of->dim, of->dim);
    }
}

/* Makes the gradients of all rows found, at @room->sums. */
static void reduce_found(const struct push *push, const struct ticket_group *of,
                         const struct found *found, const struct room *room)
{
    struct reduce_batch batch;

    if (push->joint) {
        reduce_members(push, of, found, room);
        return;
    }
    batch = batch_of(push, of, found, room->sums);
    reduce_runs(&batch);
}

/* Prefetches the row that comes some rows after row @at. */
static void ask_ahead(const struct push_group *group, const struct found *found, uint32_t at)
{
    enum { AHEAD = 6 };
    const uint32_t bytes = group->table->row_bytes;

    if (at + AHEAD >= found->count)
        return;
    for (uint32_t line = 0; line < bytes; line += CACHE_LINE)
        __builtin_prefetch((const char *)found->rows[at + AHEAD] + line, 0, 2);
}

/* Tries the rows found, for a wave of a trial. */
static void try_found(struct push *push, uint32_t group_number, const struct found *found,
                      const struct room *room)
{
    const struct push_group *const group = push_group_of(push, group_number);
    const struct ticket_group *const of = &push_runs(push)->groups[group_number];

    reduce_found(push, of, found, room);
    for (uint32_t i = 0; i < found->count; i++) {
        float *const sum = room->sums + (size_t)i * of->dim;

        ask_ahead(group, found, i);
        if (!reduce_all_finite(sum, of->dim) ||
            !finite_try(&group->optimizer, found->ids[i], found->rows[i], sum, room->copy))
            push_trial_fail(push, group_number, found->runs[i]);
    }
}

static void update_found(const struct push *push, uint32_t group_number, const struct found *found,
                         const struct room *room)
{
    const struct push_group *const group = push_group_of(push, group_number);
    const struct ticket_group *const of = &push_runs(push)->groups[group_number];
    struct reduce_batch batch;

    if (group->has_weight_gradients && !push->joint)
        give_weight_gradients(push, group, of, found);
    if (group->is_tried) {
        reduce_found(push, of, found, room);
        for (uint32_t i = 0; i < found->count; i++) {
            ask_ahead(group, found, i);
            finite_update(&group->optimizer, found->ids[i], found->rows[i],
                          room->sums + (size_t)i * of->dim, room->copy);
        }
    } else if (push->joint) {
        reduce_members(push, of, found, room);
        optimizer_update(&group->optimizer, found->ids, found->rows, room->sums, found->count);
    } else {
        batch = batch_of(push, of, found, room->sums);
        optimizer_update_runs(&group->optimizer, found->ids, found->rows, &batch);
    }
}

static void use_found(const struct request *request, uint32_t group, struct found *found,
                      const struct room *room)
{
    if (push_wave_of(request)->is_trial)
        try_found(push_wave_of(request)->push, group, found, room);
    else if (found->count > 0)
        update_found(push_wave_of(request)->push, group, found, room);
    found->count = 0;
}

void push_update(const struct request *request, uint32_t segment, const struct row_ref *refs,
                 void *const *rows, uint32_t count, float *scratch)
{
    const struct push_slice *const slice = slice_of(request, segment);
    const struct room room =
        room_of(scratch, push_wave_of(request)->push->joint != NULL,
                push_group_of(push_wave_of(request)->push, slice->group)->is_tried,
                push_runs(push_wave_of(request)->push)->groups[slice->group].dim);
    struct found found; /* large, so it is not cleared */

    found.count = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!rows[i])
            continue;
        found.runs[found.count] = slice->first_run + refs[i].position;
        found.ids[found.count] = refs[i].id;
        found.rows[found.count++] = rows[i];
        if (found.count == room.rows_max)
            use_found(request, slice->group, &found, &room);
    }
    use_found(request, slice->group, &found, &room);
}
