/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/profile/table_profile.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/macros.h"

/* One slot for held rows per so many for sampled ones. */
#define SAMPLED_PER_HELD      16
#define HOLD_INTERVAL_DEFAULT 64
#define HOT_INTERVALS         4
#define COUNTED_PICKS         5
#define HOT_PICKS             16 /* of random lookups: with fewer, chance decides which row is hot */
#define BATCH_MASK            (UINT32_MAX >> 1)

#define SLOTS_PER_SEGMENT  2048
#define SEGMENT_LENGTH_MIN 256
_Static_assert(TABLE_PROFILE_SLOTS_MAX / SLOTS_PER_SEGMENT == REUSE_SEGMENTS_MAX, "they fit");

uint32_t table_profile_segments(uint32_t slots)
{
    return MAX(slots / SLOTS_PER_SEGMENT, 1u);
}

uint64_t table_profile_bytes(uint32_t slots)
{
    return sizeof(struct table_profile) +
           sizeof(struct profile_segment) * table_profile_segments(slots) +
           sizeof(struct tracked_row) * ((uint64_t)slots + slots / SAMPLED_PER_HELD);
}

void table_profile_init(struct table_profile *profile, uint32_t slots, uint64_t rows, uint64_t seed)
{
    assert(slots >= TABLE_PROFILE_SLOTS_MIN && slots <= TABLE_PROFILE_SLOTS_MAX);
    *profile = (struct table_profile){ .rows_max = rows > 0 ? rows : UINT64_MAX,
                                       .threshold = UINT64_MAX,
                                       .segment_count = table_profile_segments(slots),
                                       .segment_length = SEGMENT_LENGTH_MIN,
                                       .random = seed,
                                       .hold_interval = HOLD_INTERVAL_DEFAULT,
                                       .hold_in = 1 };
    tracked_rows_init(&profile->sampled, slots, seed);
    tracked_rows_init(&profile->held, slots / SAMPLED_PER_HELD, seed);
}

void table_profile_clear(struct table_profile *profile)
{
    tracked_rows_clear(&profile->sampled);
    tracked_rows_clear(&profile->held);
    free(profile->segments);
    profile->segments = NULL;
}

static bool samples_all(const struct table_profile *profile)
{
    return profile->threshold == UINT64_MAX;
}

static double rate(const struct table_profile *profile)
{
    return ((double)profile->threshold + 1) / 0x1p64;
}

/* ---- Segments ---- */

static void merge_segments(struct profile_segment *into, const struct profile_segment *from)
{
    into->first += from->first;
    time_histogram_add_all(&into->sampled_reuse, &from->sampled_reuse, 1);
    time_histogram_add_all(&into->held_reuse, &from->held_reuse, 1);
}

/* Makes segments twice as long. */
static void lengthen_segments(struct table_profile *profile)
{
    struct profile_segment *const segments = profile->segments;

    for (uint32_t i = 1; i < profile->segment_count; i++) {
        if (i % 2 == 0)
            segments[i / 2] = segments[i];
        else
            merge_segments(&segments[i / 2], &segments[i]);
    }
    for (uint32_t i = MAX(profile->segment_count / 2, 1u); i < profile->segment_count; i++)
        segments[i] = (struct profile_segment){ 0 };
    profile->segment_length *= 2;
}

/* Returns the segment that a time, from 1 on, lies in. */
static struct profile_segment *segment_at(struct table_profile *profile, uint64_t time)
{
    while ((time - 1) / profile->segment_length >= profile->segment_count)
        lengthen_segments(profile);
    return &profile->segments[(time - 1) / profile->segment_length];
}

/* ---- Rows ---- */

static struct tracked_row new_row(const struct table_profile *profile, uint64_t row, uint64_t time,
                                  bool is_update)
{
    return (struct tracked_row){ .row = row,
                                 .last_time = time,
                                 .lookups = 1,
                                 .last_batch = profile->batch,
                                 .is_updated = is_update };
}

/* ---- Held rows ---- */

static int compare_counts(const void *a, const void *b)
{
    const uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

    return (left > right) - (left < right);
}

/* Finds the count that all but @rank rows are at or below. */
static enum embtier_err count_of_rank(const struct tracked_rows *rows, uint32_t rank,
                                      uint32_t *ret_count)
{
    _cleanup_(freep) uint32_t *counts = malloc(sizeof(*counts) * (rows->row_count + 1));
    uint32_t used = 0;

    if (!counts)
        return EMBTIER_NO_MEMORY;
    for (uint32_t i = 0; i < rows->slot_count; i++)
        if (rows->slots[i].lookups > 0)
            counts[used++] = rows->slots[i].lookups;
    assert(used == rows->row_count && rank < used);
    qsort(counts, used, sizeof(*counts), compare_counts);
    *ret_count = counts[used - 1 - rank];
    return EMBTIER_OK;
}

static bool is_above(const struct tracked_row *row, const void *count)
{
    return row->lookups > *(const uint32_t *)count;
}

/* Drops the colder half, and holds new rows half as often, so that cold rows come in less and
 * less. */
static enum embtier_err drop_held(struct table_profile *profile)
{
    uint32_t count = 0;

    TRY(count_of_rank(&profile->held, tracked_rows_max(&profile->held) / 2, &count));
    profile->hold_interval *= 2;
    return tracked_rows_filter(&profile->held, is_above, &count);
}

static enum embtier_err hold(struct table_profile *profile, const struct tracked_row *row)
{
    profile->random = profile->random * UINT64_C(6364136223846793005) + 1442695040888963407;
    profile->hold_in = 1 + (profile->random >> 32) % (profile->hold_interval * 2 - 1);
    if (profile->held.row_count == tracked_rows_max(&profile->held))
        TRY(drop_held(profile));
    return tracked_rows_insert(&profile->held, row);
}

/* Holds a sampled row. No random lookup has met it yet. */
static enum embtier_err hold_as(struct table_profile *profile, const struct tracked_row *sampled)
{
    struct tracked_row row = *sampled;

    if (profile->has_hashes)
        row.last_batch = 0;
    return tracked_rows_insert(&profile->held, &row);
}

/* Holds the hottest rows, when the first ones are about to be dropped from the sample. */
static enum embtier_err hold_hottest(struct table_profile *profile)
{
    const struct tracked_rows *const sampled = &profile->sampled;
    const uint32_t room = tracked_rows_max(&profile->held) / 2;
    uint32_t count = 0;

    if (sampled->row_count > room)
        TRY(count_of_rank(sampled, room, &count));
    for (uint32_t i = 0; i < sampled->slot_count; i++)
        if (sampled->slots[i].lookups > count)
            TRY(hold_as(profile, &sampled->slots[i]));
    return EMBTIER_OK;
}

/* ---- Sampled rows ---- */

static bool is_sampled(const struct table_profile *profile, uint64_t row)
{
    return (profile->has_hashes ? row : tracked_rows_hash(profile->sampled.seed, row)) <=
           profile->threshold;
}

static bool stays_sampled(const struct tracked_row *row, const void *profile)
{
    return is_sampled(profile, row->row);
}

/* Lowers the rate by an eighth. By chance somewhat fewer rows go than an eighth; only if far fewer
 * do, as when a file chooses its rows, the rate falls again. */
static enum embtier_err drop_sampled(struct table_profile *profile)
{
    const uint32_t max = tracked_rows_max(&profile->sampled);
    const uint32_t most = max / 8 * 7 + max / 64;

    if (samples_all(profile))
        TRY(hold_hottest(profile));
    while (profile->sampled.row_count > most) {
        profile->threshold = profile->threshold / 8 * 7;
        TRY(tracked_rows_filter(&profile->sampled, stays_sampled, profile));
    }
    return EMBTIER_OK;
}

static enum embtier_err add_first(struct table_profile *profile, uint64_t row, uint64_t time,
                                  bool is_update)
{
    const struct tracked_row sampled = new_row(profile, row, time, is_update);

    if (profile->sampled.row_count == tracked_rows_max(&profile->sampled))
        TRY(drop_sampled(profile));
    if (!is_sampled(profile, row))
        return EMBTIER_OK;
    segment_at(profile, time)->first += 1 / rate(profile);
    profile->batch_rows += 1 / rate(profile);
    profile->updated_batch_rows += is_update ? 1 / rate(profile) : 0;
    return tracked_rows_insert(&profile->sampled, &sampled);
}

/* Returns the time since the row's last lookup. Lookups of several lanes may come in the wrong
 * order. */
static uint64_t time_since(const struct tracked_row *row, uint64_t time)
{
    return time > row->last_time ? time - row->last_time : row->last_time - time;
}

/* Counts a lookup of a row that was looked up before; @weight 0: only its time. */
static void add_again(struct table_profile *profile, struct tracked_row *row,
                      struct time_histogram *reuse, double weight, uint64_t time, bool is_update)
{
    const bool is_new = row->last_batch != profile->batch;
    const bool was_updated = !is_new && row->is_updated;

    if (weight > 0)
        time_histogram_add(reuse, time_since(row, time), weight);
    profile->batch_rows += is_new ? weight : 0;
    profile->updated_batch_rows += is_update && !was_updated ? weight : 0;
    row->last_time = MAX(row->last_time, time);
    row->last_batch = profile->batch;
    row->is_updated = was_updated || is_update;
    tracked_row_count(row);
}

static enum embtier_err add_one(struct table_profile *profile, uint64_t row, uint64_t time,
                                bool is_update)
{
    struct tracked_row *const held = tracked_rows_find(&profile->held, row);
    struct tracked_row *sampled, picked;

    profile->lookups++;
    if (held) {
        profile->held_lookups++;
        add_again(profile, held, &segment_at(profile, time)->held_reuse, 1, time, is_update);
    }
    if (is_sampled(profile, row)) {
        sampled = tracked_rows_find(&profile->sampled, row);
        if (!sampled)
            TRY(add_first(profile, row, time, is_update));
        else
            add_again(profile, sampled, &segment_at(profile, time)->sampled_reuse,
                      held ? 0 : 1 / rate(profile), time, is_update);
    }
    if (held || samples_all(profile) || --profile->hold_in > 0)
        return EMBTIER_OK;
    picked = new_row(profile, row, time, is_update);
    return hold(profile, &picked);
}

static enum embtier_err make_segments(struct table_profile *profile)
{
    if (!profile->segments)
        profile->segments = calloc(profile->segment_count, sizeof(*profile->segments));
    return profile->segments ? EMBTIER_OK : EMBTIER_NO_MEMORY;
}

enum embtier_err table_profile_add(struct table_profile *profile, const uint64_t *ids,
                                   uint32_t count, const struct table_moment *moment)
{
    TRY(make_segments(profile));
    if (count > 0 && (profile->batches == 0 || moment->batch != profile->last_batch)) {
        profile->batches++;
        profile->last_batch = moment->batch;
    }
    profile->batch = (uint32_t)profile->batches & BATCH_MASK;
    for (uint32_t i = 0; i < count; i++)
        TRY(add_one(profile, ids[i], moment->time + i, moment->is_update));
    return EMBTIER_OK;
}

/* ---- Lookups that a server has sampled ---- */

void table_profile_use_hashes(struct table_profile *profile, uint64_t rows)
{
    profile->rows_max = rows > 0 ? rows : UINT64_MAX;
    profile->has_hashes = true;
}

/* A row is counted by random lookups only after some of them have met it. Before, it may be cold,
 * and leave soon. Random lookups would then meet it twice only if that is soon, and its times would
 * seem short. Its place for the last batch holds the number of random lookups. */
static bool is_counted(const struct tracked_row *held)
{
    return held && held->last_batch >= COUNTED_PICKS;
}

/* Counts the lookups after the first one. */
static void add_rest(struct table_profile *profile, struct tracked_row *row, double weight,
                     const struct table_sample *sample)
{
    const uint32_t rest = sample->lookups - 1;
    const uint64_t gap = (sample->last_time - sample->first_time) / rest;

    if (weight > 0)
        time_histogram_add(&segment_at(profile, sample->last_time)->sampled_reuse, gap,
                           rest * weight);
    row->last_time = MAX(row->last_time, sample->last_time);
    row->lookups += MIN(rest, UINT32_MAX - row->lookups);
}

enum embtier_err table_profile_add_sample(struct table_profile *profile,
                                          const struct table_sample *sample)
{
    struct tracked_row *row = tracked_rows_find(&profile->sampled, sample->hash);
    const bool is_held = is_counted(tracked_rows_find(&profile->held, sample->hash));
    const double weight = is_held ? 0 : 1 / rate(profile);

    assert(profile->has_hashes && sample->lookups > 0);
    TRY(make_segments(profile));
    if (!is_sampled(profile, sample->hash))
        return EMBTIER_OK;
    profile->batch = sample->batch & BATCH_MASK;
    if (row) {
        /* Random lookups do not tell how many batches have a held row. The sample does. */
        profile->batch_rows += is_held && row->last_batch != profile->batch ? 1 / rate(profile) : 0;
        add_again(profile, row, &segment_at(profile, sample->first_time)->sampled_reuse, weight,
                  sample->first_time, false);
    } else {
        TRY(add_first(profile, sample->hash, sample->first_time, false));
        row = tracked_rows_find(&profile->sampled, sample->hash);
    }
    if (row && sample->lookups > 1)
        add_rest(profile, row, weight, sample);
    return EMBTIER_OK;
}

/* Counts a held row's random lookup. */
static void add_held(struct table_profile *profile, struct tracked_row *held, uint64_t time,
                     uint32_t lookups)
{
    if (is_counted(held)) {
        time_histogram_add(&segment_at(profile, time)->held_reuse, time_since(held, time) / lookups,
                           lookups);
        profile->held_lookups += lookups;
    } else {
        held->last_batch++;
    }
    held->last_time = MAX(held->last_time, time);
    held->lookups += MIN(lookups, UINT32_MAX - held->lookups);
}

enum embtier_err table_profile_add_pick(struct table_profile *profile, uint64_t hash, uint64_t time,
                                        uint32_t lookups)
{
    struct tracked_row *const held = tracked_rows_find(&profile->held, hash);
    struct tracked_row picked;

    assert(profile->has_hashes && lookups > 0);
    TRY(make_segments(profile));
    profile->pick_lookups = MAX(profile->pick_lookups, lookups);
    profile->hold_interval = MAX(profile->hold_interval, (uint64_t)lookups);
    if (held) {
        add_held(profile, held, time, lookups);
        return EMBTIER_OK;
    }
    if (profile->hold_in > lookups) {
        profile->hold_in -= lookups;
        return EMBTIER_OK;
    }
    picked = new_row(profile, hash, time, false);
    picked.lookups = lookups;
    picked.last_batch = 1;
    return hold(profile, &picked);
}

enum embtier_err table_profile_thin(struct table_profile *profile, uint64_t threshold)
{
    if (threshold >= profile->threshold)
        return EMBTIER_OK;
    if (samples_all(profile) && profile->sampled.row_count > 0)
        TRY(hold_hottest(profile));
    profile->threshold = threshold;
    return tracked_rows_filter(&profile->sampled, stays_sampled, profile);
}

void table_profile_set_counts(struct table_profile *profile, uint64_t lookups, uint64_t batches,
                              uint64_t updated_rows)
{
    profile->lookups = lookups;
    profile->batches = batches;
    profile->updated_batch_rows = (double)updated_rows;
}

/* ---- Results ---- */

/* Returns the lookups that the sample stands for. The first one of each row is among them. Those of
 * held rows may be estimated as more than there were. */
static double unheld_lookups(const struct table_profile *profile)
{
    return (double)(profile->lookups - MIN(profile->held_lookups, profile->lookups));
}

static double first_lookups(const struct table_profile *profile)
{
    double sum = 0;

    for (uint32_t i = 0; profile->segments && i < profile->segment_count; i++)
        sum += profile->segments[i].first;
    return sum;
}

/* Returns the different rows, as far as the sample knows. A server lowers the rate of small tables
 * too, long after it has seen all of their rows. So each row counts by the rate at its first
 * lookup: Cohen, "All-Distances Sketches, Revisited: HIP Estimators", PODS 2014, section 6. */
static double sampled_rows(const struct table_profile *profile)
{
    return profile->has_hashes ? first_lookups(profile)
                               : (double)profile->sampled.row_count / rate(profile);
}

/* The sample's estimate may be more than there can be, and less than there are: a file can choose
 * rows that all leave the sample. */
static double rows_of(const struct table_profile *profile)
{
    const double sampled = sampled_rows(profile);
    const double lookups = profile->has_hashes ? (double)profile->lookups : unheld_lookups(profile);
    const double most = MIN(lookups, (double)profile->rows_max);

    return MAX((double)MAX(profile->held.row_count, profile->lookups > 0 ? 1u : 0u),
               MIN(sampled, most));
}

struct table_summary table_profile_summary(const struct table_profile *profile)
{
    const double batches = (double)MAX(profile->batches, UINT64_C(1));
    const double lookups = (double)profile->lookups;
    const double batch_rows = MIN(MIN(profile->batch_rows, lookups) / batches, rows_of(profile));

    return (struct table_summary){
        .lookups = profile->lookups,
        .batches = profile->batches,
        .rows = rows_of(profile),
        .batch_rows = batch_rows,
        .updated_batch_rows = MIN(profile->updated_batch_rows / batches, batch_rows),
        .sampling_rate = rate(profile),
    };
}

/* Factors that scale what was sampled to what there was. */
struct scales {
    double first;
    double reuse;
    double held; /* 1 if they are counted, not estimated */
};

/* Sampled rows stand for more or fewer lookups than there were: SHARDS-adj, section 4.3 of the
 * paper, but over all times, as the hottest rows are held. */
static struct scales scales_of(const struct table_profile *profile)
{
    const double rows = rows_of(profile);
    const double reuses = MAX(unheld_lookups(profile) - rows, 0.0);
    const double held = (double)profile->held_lookups;
    const double held_most = (double)profile->lookups - rows;
    const double first = first_lookups(profile);
    double reuse = 0;

    for (uint32_t i = 0; i < profile->segment_count; i++)
        reuse += time_histogram_total(&profile->segments[i].sampled_reuse);
    return (struct scales){ first > 0 ? rows / first : 0, reuse > 0 ? reuses / reuse : 0,
                            held > held_most ? held_most / held : 1 };
}

static void add_segment(const struct profile_segment *segment, const struct scales *scales,
                        struct reuse_segment *sum)
{
    struct time_curve curve;

    sum->first += segment->first * scales->first;
    time_curve_make(&segment->held_reuse, &curve);
    time_curve_add(&sum->reuse, &curve, scales->held);
    time_curve_make(&segment->sampled_reuse, &curve);
    time_curve_add(&sum->reuse, &curve, scales->reuse);
}

/* Each row has a first lookup. If no sample has one, all samples were lost, or they come while the
 * results are made: these then count as of the end. */
static void add_unsampled(const struct table_profile *profile, uint64_t end_time,
                          struct reuse_times *times)
{
    const uint64_t last = (MAX(end_time, UINT64_C(1)) - 1) / (uint64_t)times->segment_length;

    if (first_lookups(profile) == 0)
        times->segments[last].first += rows_of(profile);
}

void table_profile_reuse(const struct table_profile *profile, uint64_t end_time,
                         struct reuse_times *ret_times)
{
    uint64_t length = SEGMENT_LENGTH_MIN;
    struct scales scales;

    while (length * profile->segment_count < end_time)
        length *= 2;
    *ret_times = (struct reuse_times){ .lookups = (double)profile->lookups,
                                       .end_time = (double)end_time,
                                       .segment_length = (double)length,
                                       .segment_count = profile->segment_count };
    add_unsampled(profile, end_time, ret_times);
    if (!profile->segments)
        return;
    scales = scales_of(profile);
    for (uint32_t i = 0; i < profile->segment_count; i++)
        add_segment(&profile->segments[i], &scales,
                    &ret_times->segments[i * profile->segment_length / length]);
}

/* True for a row whose counted lookups are nearly all that it had: it was picked after
 * @hold_interval lookups on average. */
static bool is_hot(const struct table_profile *profile, const struct tracked_row *held)
{
    return held && held->lookups >= HOT_INTERVALS * profile->hold_interval &&
           held->lookups >= HOT_PICKS * (uint64_t)profile->pick_lookups;
}

/* Puts the hot held rows, then the other sampled ones, into @ret_groups. */
static uint32_t collect_groups(const struct table_profile *profile, struct access_group *ret_groups,
                               uint32_t *ret_held)
{
    const struct tracked_rows *rows = &profile->held;
    uint32_t count = 0;

    for (uint32_t i = 0; i < rows->slot_count; i++)
        if (is_hot(profile, &rows->slots[i]))
            ret_groups[count++] = (struct access_group){ 1, rows->slots[i].lookups };
    *ret_held = count;
    rows = &profile->sampled;
    for (uint32_t i = 0; i < rows->slot_count; i++)
        if (rows->slots[i].lookups > 0 &&
            !is_hot(profile, tracked_rows_find(&profile->held, rows->slots[i].row)))
            ret_groups[count++] = (struct access_group){ 1, rows->slots[i].lookups };
    return count;
}

/* Makes rows and lookups of all groups together those of the table. */
static void scale_groups(const struct table_profile *profile, struct access_group *groups,
                         uint32_t held, uint32_t count)
{
    const double rows = rows_of(profile) - held;
    double held_lookups = 0, sampled_lookups = 0, lookups;

    for (uint32_t i = 0; i < count; i++)
        *(i < held ? &held_lookups : &sampled_lookups) += groups[i].lookups;
    lookups = MAX((double)profile->lookups - held_lookups, rows);
    for (uint32_t i = held; i < count; i++) {
        groups[i].rows = rows / (count - held);
        groups[i].lookups *= rows > 0 ? lookups / sampled_lookups / groups[i].rows : 0;
    }
}

enum embtier_err table_profile_cdf(const struct table_profile *profile, struct access_cdf *ret_cdf)
{
    const uint32_t most = profile->held.row_count + profile->sampled.row_count;
    _cleanup_(freep) struct access_group *groups = malloc(sizeof(*groups) * (most + 1));
    uint32_t held = 0, count;

    if (!groups)
        return EMBTIER_NO_MEMORY;
    count = collect_groups(profile, groups, &held);
    if (count == held && rows_of(profile) > held) /* no row of the others is in the sample */
        groups[count++] = (struct access_group){ 1, 1 };
    scale_groups(profile, groups, held, count);
    access_cdf_make(groups, count, ret_cdf);
    return EMBTIER_OK;
}
