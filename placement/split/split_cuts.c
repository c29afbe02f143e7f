/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/split/split_cuts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS        24 /* new corners for each GPU */
#define FIRST_CORNERS 3
#define CORNERS_MAX   (ROUNDS + FIRST_CORNERS)
#define BISECTIONS    48
#define RISES         120 /* of a private price, by RISE */
#define RISE          16
#define CLOSE         1e-10
#define EXTREME       1e9 /* a weight at which nothing else counts */
#define PRICE_LEAST   1e-6
#define PRICE_CHANGES 24 /* of a shared level by PRICE_FACTOR, until it is too full or no more */
#define PRICE_FACTOR  2
#define PRICE_HALVES  20 /* bisections after that, for the second shared level */
#define OUTER_HALVES  6  /* and for the others */

/* All cuts of a GPU at one weight. Those at two prices of the private level are mixed. */
struct corner {
    double weight, low_price, high_price;
    double low_share; /* of the cuts at @low_price */
    double time_s, shared_cost;
};

struct frontier {
    uint32_t count;
    struct corner corners[CORNERS_MAX]; /* time rises, shared cost falls */
};

struct cutting {
    struct split_draft *d;
    const struct split_instance *x;
    const struct split_bound *bound;
    uint32_t *tables; /* by GPU */
    uint32_t starts[MODEL_GPUS_MAX + 1];
    uint32_t shared[SPLIT_LEVELS_MAX];      /* levels */
    double shared_prices[SPLIT_LEVELS_MAX]; /* of a byte; 0: the private level */
    double budget;                          /* the price of all shared bytes */
    bool has_margin; /* a row of each mixed table stays free in each level but the first */
    struct frontier *frontiers; /* gpu_count */
};

static void free_parts(struct cutting *c)
{
    free(c->tables);
    free(c->frontiers);
}

/* ---- one GPU ---- */

struct sums {
    double time_s;
    double bytes[SPLIT_LEVELS_MAX + 1]; /* the last one: of no level */
};

static struct split_prices prices_of(const struct cutting *c, uint32_t table, uint32_t gpu,
                                     double weight, double private_price)
{
    double byte_prices[SPLIT_LEVELS_MAX];

    memcpy(byte_prices, c->shared_prices, sizeof(byte_prices));
    if (c->x->private_level < c->x->level_count)
        byte_prices[c->x->private_level] = private_price;
    return split_prices_of(c->x, table, gpu, weight, byte_prices);
}

static struct sums sum_up(const struct cutting *c, uint32_t gpu, double weight,
                          double private_price)
{
    struct sums sums = { 0 };

    for (uint32_t i = c->starts[gpu]; i < c->starts[gpu + 1]; i++) {
        const uint32_t table = c->tables[i];
        const struct split_prices prices = prices_of(c, table, gpu, weight, private_price);
        const struct split_use use = c->d->uses[table].mode == SPLIT_MIXED
                                         ? split_use_of(c->x, table, SPLIT_MIXED, &prices)
                                         : c->d->uses[table];

        sums.time_s += use.time_s;
        for (uint32_t m = 0; m < c->x->level_count; m++)
            sums.bytes[m] += use.bytes[m];
    }
    return sums;
}

static double shared_cost(const struct cutting *c, const struct sums *sums)
{
    double cost = 0;

    for (uint32_t m = 0; m < c->x->level_count; m++)
        cost += c->shared_prices[m] * sums->bytes[m];
    return cost;
}

/* Bytes of one row of each mixed table of these GPUs: whole rows may take as much more. */
static double margin(const struct cutting *c, uint32_t level, uint32_t first_gpu, uint32_t end_gpu)
{
    double bytes = 0;

    if (!c->has_margin || level == 0)
        return 0;
    for (uint32_t i = c->starts[first_gpu]; i < c->starts[end_gpu]; i++)
        if (c->d->uses[c->tables[i]].mode == SPLIT_MIXED)
            bytes += c->x->curves[c->tables[i]].row_bytes;
    return bytes;
}

static double private_room(const struct cutting *c, uint32_t gpu)
{
    const uint32_t level = c->x->private_level;

    return level < c->x->level_count
               ? (double)c->x->room_bytes[gpu] - margin(c, level, gpu, gpu + 1)
               : 0;
}

static double shared_room(const struct cutting *c, uint32_t level)
{
    return (double)c->x->room_bytes[split_room(c->x, level, 0)] -
           margin(c, level, 0, c->x->gpu_count);
}

static struct corner mix(const struct cutting *c, const struct corner *prices, double room,
                         const struct sums *low, const struct sums *high)
{
    const uint32_t level = c->x->private_level;
    struct corner corner = *prices;
    const double excess = low->bytes[level] - high->bytes[level];

    corner.low_share =
        low->bytes[level] <= room ? 1 : fmax((room - high->bytes[level]) / excess, 0);
    corner.time_s = corner.low_share * low->time_s + (1 - corner.low_share) * high->time_s;
    corner.shared_cost =
        corner.low_share * shared_cost(c, low) + (1 - corner.low_share) * shared_cost(c, high);
    return corner;
}

/* A price to begin with: the bound's, for this weight. */
static double first_price(const struct cutting *c, uint32_t gpu, double weight)
{
    const double price = c->bound->prices_s_byte[gpu];
    const double least = PRICE_LEAST * c->bound->bound_s / fmax(private_room(c, gpu), 1);

    return fmax((price > 0 ? price * c->x->gpu_count : least) * weight, 1e-30);
}

/* Finds the cheapest cuts at this weight that fit the private level. False: it is too small. */
static bool fill(const struct cutting *c, uint32_t gpu, double weight, struct corner *ret_corner)
{
    const double room = private_room(c, gpu);
    const uint32_t level = c->x->private_level;
    struct corner corner = { .weight = weight };
    struct sums low = sum_up(c, gpu, weight, 0), high = low;
    uint32_t rises = 0;

    if (low.bytes[level] > room)
        corner.high_price = first_price(c, gpu, weight);
    while (low.bytes[level] > room) {
        high = sum_up(c, gpu, weight, corner.high_price);
        if (high.bytes[level] <= room)
            break;
        if (++rises > RISES)
            return false;
        low = high;
        corner.low_price = corner.high_price;
        corner.high_price *= RISE;
    }
    for (uint32_t i = 0;
         i < BISECTIONS && low.bytes[level] > room && high.bytes[level] < room * (1 - CLOSE) &&
         corner.low_price < corner.high_price * (1 - CLOSE);
         i++) {
        const double price = corner.low_price > 0 ? sqrt(corner.low_price * corner.high_price)
                                                  : corner.high_price / RISE;
        const struct sums middle = sum_up(c, gpu, weight, price);

        if (middle.bytes[level] > room) {
            low = middle;
            corner.low_price = price;
        } else {
            high = middle;
            corner.high_price = price;
        }
    }
    *ret_corner = mix(c, &corner, room, &low, &high);
    return true;
}

/* ---- all GPUs ---- */

/* The corner before @time_s, or the first one. */
static uint32_t corner_before(const struct frontier *f, double time_s)
{
    uint32_t i = 0;

    while (i + 1 < f->count && f->corners[i + 1].time_s <= time_s)
        i++;
    return i;
}

/* The share of the next corner in a mix that takes @time_s. */
static double next_share(const struct frontier *f, uint32_t i, double time_s)
{
    double between_s;

    if (i + 1 >= f->count)
        return 0;
    between_s = f->corners[i + 1].time_s - f->corners[i].time_s;
    return between_s > 0 ? fmin(fmax((time_s - f->corners[i].time_s) / between_s, 0), 1) : 0;
}

static double cost_within(const struct cutting *c, double time_s)
{
    double cost = 0;

    for (uint32_t g = 0; g < c->x->gpu_count; g++) {
        const struct frontier *const f = &c->frontiers[g];
        const uint32_t i = corner_before(f, time_s);
        const double share = next_share(f, i, time_s);

        cost += (1 - share) * f->corners[i].shared_cost;
        if (share > 0)
            cost += share * f->corners[i + 1].shared_cost;
    }
    return cost;
}

/* The least time within the budget. INFINITY: there is none. */
static double least_time_s(const struct cutting *c)
{
    double low_s = 0, high_s = 0;

    for (uint32_t g = 0; g < c->x->gpu_count; g++) {
        const struct frontier *const f = &c->frontiers[g];

        low_s = fmax(low_s, f->corners[0].time_s);
        high_s = fmax(high_s, f->corners[f->count - 1].time_s);
    }
    if (cost_within(c, low_s) <= c->budget)
        return low_s;
    if (cost_within(c, high_s) > c->budget * (1 + CLOSE))
        return INFINITY;
    for (uint32_t i = 0; i < 2 * BISECTIONS && low_s < high_s; i++) {
        const double middle_s = low_s + (high_s - low_s) / 2;

        if (cost_within(c, middle_s) <= c->budget)
            high_s = middle_s;
        else
            low_s = middle_s;
    }
    return high_s;
}

/* The weight at which both ends of the segment that holds @time_s cost the same. 0: none. */
static double weight_at(const struct frontier *f, double time_s)
{
    const uint32_t i = corner_before(f, time_s);
    const struct corner *const a = &f->corners[i];

    if (i + 1 >= f->count || !(a[1].time_s > a->time_s))
        return 0;
    return (a->shared_cost - a[1].shared_cost) / (a[1].time_s - a->time_s);
}

/* Adds the corner between those next to @time_s. False: there is none. */
static bool add_corner(const struct cutting *c, uint32_t gpu, double time_s)
{
    struct frontier *const f = &c->frontiers[gpu];
    const uint32_t i = corner_before(f, time_s);
    const double weight = weight_at(f, time_s);
    struct corner corner = { 0 };
    double cost;

    if (!(weight > 0) || f->count == CORNERS_MAX || !fill(c, gpu, weight, &corner))
        return false;
    cost = weight * f->corners[i].time_s + f->corners[i].shared_cost;
    if (weight * corner.time_s + corner.shared_cost >= cost * (1 - CLOSE) ||
        corner.time_s <= f->corners[i].time_s || corner.time_s >= f->corners[i + 1].time_s)
        return false;
    memmove(&f->corners[i + 2], &f->corners[i + 1], (f->count - i - 1) * sizeof(corner));
    f->corners[i + 1] = corner;
    f->count++;
    return true;
}

/* The corners of least time, of the bound's weight if all GPUs are alike, and of least shared
 * bytes. */
static bool add_first(const struct cutting *c, uint32_t gpu)
{
    struct frontier *const f = &c->frontiers[gpu];
    const double weight = 1.0 / c->x->gpu_count;

    f->count = FIRST_CORNERS;
    return fill(c, gpu, weight * EXTREME, &f->corners[0]) && fill(c, gpu, weight, &f->corners[1]) &&
           fill(c, gpu, 0, &f->corners[2]);
}

/* INFINITY: nothing fits. */
static double find_time_s(const struct cutting *c)
{
    double time_s;
    bool added = true;

    for (uint32_t g = 0; g < c->x->gpu_count; g++)
        if (!add_first(c, g))
            return INFINITY;
    time_s = least_time_s(c);
    for (uint32_t i = 0; i < ROUNDS && added && !isinf(time_s); i++) {
        added = false;
        for (uint32_t g = 0; g < c->x->gpu_count; g++)
            added |= add_corner(c, g, time_s);
        time_s = least_time_s(c);
    }
    return time_s;
}

/* ---- cuts ---- */

static void add_rows(const struct cutting *c, uint32_t table, const struct corner *corner,
                     uint32_t gpu, double share, double *rows)
{
    const double shares[] = { share * corner->low_share, share * (1 - corner->low_share) };
    const double prices[] = { corner->low_price, corner->high_price };

    for (uint32_t k = 0; k < 2; k++) {
        if (shares[k] > 0) {
            const struct split_prices p = prices_of(c, table, gpu, corner->weight, prices[k]);
            const struct split_use use = split_use_of(c->x, table, SPLIT_MIXED, &p);

            for (uint32_t m = 0; m < c->x->level_count; m++)
                rows[m] += shares[k] * use.rows[m];
        }
    }
}

static void cut_table(const struct cutting *c, uint32_t table, uint32_t gpu, double time_s)
{
    const struct frontier *const f = &c->frontiers[gpu];
    const uint32_t i = corner_before(f, time_s);
    const double share = next_share(f, i, time_s);
    struct split_use *const use = &c->d->uses[table];

    if (use->mode == SPLIT_MIXED) {
        memset(use->rows, 0, sizeof(use->rows));
        add_rows(c, table, &f->corners[i], gpu, 1 - share, use->rows);
        if (share > 0)
            add_rows(c, table, &f->corners[i + 1], gpu, share, use->rows);
    }
    split_use_count(c->x, table, use);
}

/* Also keeps the weight and prices that the cuts were made with. */
static void cut_gpu(const struct cutting *c, uint32_t gpu, double time_s)
{
    const struct frontier *const f = &c->frontiers[gpu];
    const double weight = weight_at(f, time_s);
    const struct corner *const corner = &f->corners[corner_before(f, time_s)];
    double gpu_s = 0;

    for (uint32_t i = c->starts[gpu]; i < c->starts[gpu + 1]; i++) {
        cut_table(c, c->tables[i], gpu, time_s);
        gpu_s += c->d->uses[c->tables[i]].time_s;
    }
    c->d->largest_s = fmax(c->d->largest_s, gpu_s);
    c->d->weights[gpu] = weight > 0 ? weight : corner->weight;
    for (uint32_t m = 0; m < c->x->level_count; m++)
        c->d->prices_byte[split_room(c->x, m, gpu)] =
            m == c->x->private_level ? corner->high_price * c->d->weights[gpu] / corner->weight
                                     : c->shared_prices[m];
}

/* ---- prices of shared levels ---- */

static void start_prices(struct cutting *c)
{
    const struct split_instance *const x = c->x;

    for (uint32_t m = 0; m < x->level_count; m++) {
        const uint32_t room = split_room(x, m, 0);
        const double bytes = fmax((double)x->room_bytes[room], 1);
        const double least = fmax(PRICE_LEAST * c->bound->bound_s, 1e-30) / bytes;

        if (m != x->private_level)
            c->shared_prices[m] = fmax(c->bound->prices_s_byte[room], least);
    }
}

static void cut_all(struct cutting *c)
{
    double time_s;

    c->budget = 0;
    for (uint32_t m = 0; m < c->x->level_count; m++)
        if (m != c->x->private_level)
            c->budget += c->shared_prices[m] * shared_room(c, m);
    time_s = find_time_s(c);
    c->d->largest_s = isinf(time_s) ? (double)INFINITY : 0;
    for (uint32_t g = 0; g < c->x->gpu_count && !isinf(time_s); g++)
        cut_gpu(c, g, time_s);
}

/* ---- several shared levels ---- */

static double shared_bytes(const struct cutting *c, uint32_t level)
{
    double bytes = 0;

    for (uint32_t i = 0; i < c->x->table_count; i++)
        bytes += c->d->uses[i].bytes[level];
    return bytes;
}

static bool is_too_full(const struct cutting *c, uint32_t level)
{
    return shared_bytes(c, level) > shared_room(c, level) * (1 + CLOSE) + CLOSE;
}

enum fit {
    FITS,
    TOO_FULL,       /* the level: its price is too low */
    OTHER_TOO_FULL, /* another one: its price is too high */
};

static enum fit fit_of(const struct cutting *c, uint32_t shared)
{
    if (is_too_full(c, c->shared[shared]))
        return TOO_FULL;
    for (uint32_t i = 0; i < shared; i++)
        if (is_too_full(c, c->shared[i]))
            return OTHER_TOO_FULL;
    return FITS;
}

/* Mixes the drafts so that the level is just full. */
static void mix_drafts(const struct cutting *c, uint32_t level, const struct split_draft *full,
                       const struct split_draft *other)
{
    double full_bytes = 0, other_bytes = 0, share;
    double gpus_s[MODEL_GPUS_MAX] = { 0 };

    for (uint32_t i = 0; i < c->x->table_count; i++) {
        full_bytes += full->uses[i].bytes[level];
        other_bytes += other->uses[i].bytes[level];
    }
    share = fmin(fmax((shared_room(c, level) - other_bytes) / (full_bytes - other_bytes), 0), 1);
    c->d->largest_s = 0;
    for (uint32_t i = 0; i < c->x->table_count; i++) {
        struct split_use *const use = &c->d->uses[i];
        const uint32_t gpu = split_draft_gpu(c->d, i);

        for (uint32_t m = 0; m < c->x->level_count; m++)
            use->rows[m] = share * full->uses[i].rows[m] + (1 - share) * other->uses[i].rows[m];
        split_use_count(c->x, i, use);
        gpus_s[gpu] += use->time_s;
        c->d->largest_s = fmax(c->d->largest_s, gpus_s[gpu]);
    }
}

static enum embtier_err fit_levels(struct cutting *c, uint32_t shared);

/* Cuts at this price, and keeps the draft as one end of the bisection. */
static enum embtier_err try_price(struct cutting *c, uint32_t shared, double price,
                                  struct split_draft *full, struct split_draft *other,
                                  enum fit *ret_fit)
{
    c->shared_prices[c->shared[shared]] = price;
    TRY(fit_levels(c, shared - 1));
    *ret_fit = isinf(c->d->largest_s) ? FITS : fit_of(c, shared);
    if (*ret_fit != FITS)
        split_draft_copy(*ret_fit == TOO_FULL ? full : other, c->d);
    return EMBTIER_OK;
}

static enum embtier_err bisect_price(struct cutting *c, uint32_t shared, double price,
                                     struct split_draft *full, struct split_draft *other)
{
    const uint32_t halves = shared == 1 ? PRICE_HALVES : OUTER_HALVES;
    enum fit first = FITS, fit;
    double before = price;

    TRY(try_price(c, shared, price, full, other, &first));
    fit = first;
    for (uint32_t i = 0; i < PRICE_CHANGES && fit == first && fit != FITS; i++) {
        before = price;
        price = first == TOO_FULL ? price * PRICE_FACTOR : price / PRICE_FACTOR;
        TRY(try_price(c, shared, price, full, other, &fit));
    }
    if (fit == FITS || fit == first)
        return EMBTIER_OK;
    for (uint32_t i = 0; i < halves; i++) {
        const double middle = sqrt(before * price);

        TRY(try_price(c, shared, middle, full, other, &fit));
        if (fit == FITS)
            return EMBTIER_OK;
        *(fit == first ? &before : &price) = middle;
    }
    mix_drafts(c, c->shared[shared], full, other);
    return EMBTIER_OK;
}

/* Cuts so that no shared level up to this one is too full, if the last prices of the others allow
 * it. Each level's price is bisected in turn, inside the bisection of the next one's. */
static enum embtier_err fit_levels(struct cutting *c, uint32_t shared)
{
    _cleanup_(split_draft_freep) struct split_draft *full = NULL, *other = NULL;

    if (shared == 0) {
        cut_all(c);
        return EMBTIER_OK;
    }
    TRY(split_draft_new(c->x, &full));
    TRY(split_draft_new(c->x, &other));
    return bisect_price(c, shared, c->shared_prices[c->shared[shared]], full, other);
}

/* ---- all ---- */

static void list_tables(struct cutting *c)
{
    const uint32_t count = c->x->table_count;

    memset(c->starts, 0, sizeof(c->starts));
    for (uint32_t i = 0; i < count; i++)
        c->starts[split_draft_gpu(c->d, i) + 1]++;
    for (uint32_t g = 0; g < c->x->gpu_count; g++)
        c->starts[g + 1] += c->starts[g];
    for (uint32_t i = count; i-- > 0;)
        c->tables[--c->starts[split_draft_gpu(c->d, i) + 1]] = i;
    memmove(c->starts, c->starts + 1, c->x->gpu_count * sizeof(*c->starts));
    c->starts[c->x->gpu_count] = count;
}

static enum embtier_err cut_with(struct cutting *c, bool has_margin)
{
    uint32_t shared_count = 0;

    for (uint32_t m = 0; m < c->x->level_count; m++)
        if (m != c->x->private_level)
            c->shared[shared_count++] = m;
    c->has_margin = has_margin;
    start_prices(c);
    return fit_levels(c, shared_count > 0 ? shared_count - 1 : 0);
}

enum embtier_err split_cuts_find(struct split_draft *d, const struct split_bound *bound)
{
    _cleanup_(free_parts) struct cutting c = { .d = d, .x = d->x, .bound = bound };

    c.tables = calloc(d->x->table_count, sizeof(*c.tables));
    c.frontiers = calloc(d->x->gpu_count, sizeof(*c.frontiers));
    if (!c.tables || !c.frontiers)
        return EMBTIER_NO_MEMORY;
    list_tables(&c);
    TRY(cut_with(&c, true));
    return isinf(d->largest_s) ? cut_with(&c, false) : EMBTIER_OK;
}

uint32_t split_cuts_effort(const struct split_instance *x)
{
    const uint32_t shared_count = x->level_count - (x->private_level < x->level_count);
    uint32_t effort = shared_count > 1 ? PRICE_HALVES : 1;

    for (uint32_t i = 2; i < shared_count; i++)
        effort *= OUTER_HALVES;
    return effort;
}
