/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/trial/trial_load.h"

#include <math.h>
#include <stdlib.h>

#include "placement/synthetic/zipf.h"

#define NONE       UINT32_MAX
#define HEAD_RANKS 64 /* ranks of the trial whose share of their group differs from the mean */
/* Updates of each row between two checkpoints, after which more change nearly nothing: all rows are
 * dirty. One update then stands for several. */
#define MOST_UPDATES 32
#define TRIES        64 /* for a row that is not cached; then any row is taken */
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
    double accept[HEAD_RANKS];
    struct cached *cached; /* of each row */
    uint32_t newest, oldest, cached_count;
    uint64_t updates, next_checkpoint;
    uint64_t each_update; /* updates that one stands for, see MOST_UPDATES */
    uint32_t sweep;       /* the next row that a checkpoint looks at; NONE: none is under way */
};

/* The trial's row g stands for the server's ranks from g * each_of on. It has the popularity of the
 * one in their middle, which is less than the mean of them where popularity falls steeply. */
static void fill_accept(struct trial_load *load)
{
    const double each_of = load->opts.each_of;

    for (uint32_t g = 0; g < HEAD_RANKS; g++) {
        const uint64_t first = (uint64_t)(g * each_of), end = (uint64_t)((g + 1) * each_of);
        const uint64_t count = MAX(end - first, UINT64_C(1));
        const uint64_t step = MAX(count / 1024, UINT64_C(1));
        const double middle = pow((double)first + (double)(count + 1) / 2, -load->opts.zipf);
        double sum = 0;

        for (uint64_t k = first; k < first + count; k += step)
            sum += pow((double)k + 1, -load->opts.zipf) * (double)MIN(step, first + count - k);
        load->accept[g] = MIN(middle * (double)count / sum, 1.0);
    }
}

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
    load->zipf = zipf_make((uint64_t)((double)opts->rows * opts->each_of), opts->zipf);
    load->newest = load->oldest = load->sweep = NONE;
    load->next_checkpoint = opts->checkpoint_updates;
    load->each_update =
        opts->cache_rows < opts->rows
            ? 1
            : MAX(opts->checkpoint_updates / (MOST_UPDATES * (uint64_t)opts->rows), UINT64_C(1));
    fill_accept(load);
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

static uint32_t draw(const struct trial_load *load, struct random *random)
{
    uint64_t rank;

    do {
        rank = (uint64_t)((double)zipf_draw(&load->zipf, random) / load->opts.each_of);
    } while (rank < HEAD_RANKS && random_unit(random) > load->accept[rank]);
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
    while (done < count) {
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
