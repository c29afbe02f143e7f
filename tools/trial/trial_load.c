/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/trial/trial_load.h"

#include <math.h>
#include <stdlib.h>

#include "placement/synthetic/zipf.h"

#define NONE UINT32_MAX
/* Updates of each row between two checkpoints, after which more change nearly nothing: all rows are
 * dirty. One update then stands for several. */
#define MOST_UPDATES 32
#define TRIES        64 /* for a row that is not cached; then any row is taken */
/* Accesses of one call. Where nearly all go to cached rows, hardly one has to be written. */
#define STEPS_MOST (UINT32_C(1) << 20)
/* Odd and prime, so that it permutes the numbers of all trials but those that it divides. */
#define SPREAD UINT64_C(2654435761)

struct cached {
    uint32_t newer, older;
    bool is_in, is_dirty;
};

struct trial_load {
    struct trial_load_opts opts;
    struct random random;
    struct zipf zipf;
    double shift;          /* of the ranks, see draw() */
    struct cached *cached; /* of each row */
    uint32_t newest, oldest, cached_count;
    uint64_t updates, next_checkpoint;
    uint64_t each_update; /* updates that one stands for, see MOST_UPDATES */
    uint32_t sweep;       /* the next row that a checkpoint looks at; NONE: none is under way */
};

enum embtier_err trial_load_new(const struct trial_load_opts *opts, struct trial_load **ret_load,
                                struct err_msg *msg)
{
    _cleanup_(trial_load_freep) struct trial_load *load = calloc(1, sizeof(*load));

    if (load)
        load->cached = calloc(opts->rows, sizeof(*load->cached));
    if (!load || !load->cached)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    load->opts = *opts;
    load->random.state = opts->seed;
    load->zipf = zipf_make(opts->rows, opts->zipf);
    load->shift = 0.5 + 0.5 / opts->each_of;
    load->newest = load->oldest = load->sweep = NONE;
    load->next_checkpoint = opts->checkpoint_updates;
    load->each_update =
        opts->cache_rows < opts->rows
            ? 1
            : MAX(opts->checkpoint_updates / (MOST_UPDATES * (uint64_t)opts->rows), UINT64_C(1));
    *ret_load = TAKE(load);
    return EMBTIER_OK;
}

void trial_load_free(struct trial_load *load)
{
    if (!load)
        return;
    free(load->cached);
    free(load);
}

/* The trial's row g stands for the server's ranks from g * each_of on, and has the popularity of
 * the one in their middle: (g + shift)^-zipf. Zipf's law over the trial's rows gives (g + 1)^-zipf,
 * so some draws are refused, none of the hottest row. */
static uint32_t draw(const struct trial_load *load, struct random *random)
{
    const double shift = load->shift;
    double kept;
    uint64_t rank;

    do {
        rank = zipf_draw(&load->zipf, random);
        kept = pow(((double)rank + 1) * shift / ((double)rank + shift), load->opts.zipf);
    } while (random_unit(random) > kept);
    return (uint32_t)(rank * SPREAD % load->opts.rows);
}

/* ---- The cache ---- */

static void take_out(struct trial_load *load, uint32_t row)
{
    struct cached *const one = &load->cached[row];

    *(one->newer == NONE ? &load->newest : &load->cached[one->newer].older) = one->older;
    *(one->older == NONE ? &load->oldest : &load->cached[one->older].newer) = one->newer;
    one->is_in = false;
    load->cached_count--;
}

static void put_in(struct trial_load *load, uint32_t row)
{
    struct cached *const one = &load->cached[row];

    one->newer = NONE;
    one->older = load->newest;
    *(load->newest == NONE ? &load->oldest : &load->cached[load->newest].newer) = row;
    load->newest = row;
    one->is_in = true;
    load->cached_count++;
}

/* Returns the row that has to be written because @row needs its place, or NONE. */
static uint32_t touch(struct trial_load *load, uint32_t row, bool is_update)
{
    uint32_t victim = NONE;

    if (load->cached[row].is_in) {
        take_out(load, row);
    } else if (load->cached_count >= load->opts.cache_rows) {
        const uint32_t oldest = load->oldest;

        take_out(load, oldest);
        victim = load->cached[oldest].is_dirty ? oldest : NONE;
        load->cached[oldest].is_dirty = false;
    }
    put_in(load, row);
    load->cached[row].is_dirty = load->cached[row].is_dirty || is_update;
    return victim;
}

/* Accesses one row. Returns the row that has to be written, or NONE. */
static uint32_t step(struct trial_load *load)
{
    const bool is_update = random_unit(&load->random) >= load->opts.reads_share;
    const uint32_t row = draw(load, &load->random);

    load->updates += is_update ? load->each_update : 0;
    if (load->opts.cache_rows == 0)
        return is_update ? row : NONE;
    return touch(load, row, is_update);
}

/* Returns the next dirty row of a checkpoint; NONE: that was the last. */
static uint32_t sweep(struct trial_load *load)
{
    for (; load->sweep < load->opts.rows; load->sweep++) {
        struct cached *const one = &load->cached[load->sweep];

        if (one->is_dirty) {
            one->is_dirty = false;
            return load->sweep++;
        }
    }
    load->sweep = NONE;
    return NONE;
}

uint32_t trial_load_write(struct trial_load *load, uint32_t count, uint32_t *ret_rows,
                          bool *ret_checkpoint)
{
    uint32_t done = 0;

    *ret_checkpoint = false;
    for (uint32_t i = 0; done < count && i < STEPS_MOST; i++) {
        const bool sweeps = load->sweep != NONE;
        const uint32_t row = sweeps ? sweep(load) : step(load);

        if (row != NONE)
            ret_rows[done++] = row;
        if (sweeps && row == NONE) {
            *ret_checkpoint = true;
            break;
        }
        if (!sweeps && load->opts.checkpoint_updates > 0 &&
            load->updates >= load->next_checkpoint) {
            load->next_checkpoint += load->opts.checkpoint_updates;
            load->sweep = 0;
        }
    }
    return done;
}

uint64_t trial_load_updates(const struct trial_load *load)
{
    return load->updates;
}

uint32_t trial_load_read(const struct trial_load *load, struct random *random)
{
    uint32_t row = draw(load, random);

    for (uint32_t i = 0; i < TRIES && load->cached[row].is_in; i++)
        row = draw(load, random);
    return row;
}
