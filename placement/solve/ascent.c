/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/solve/ascent.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define STRETCH    0.5 /* of the space, along the change of slopes */
#define RUNS       4   /* each from the best point so far, with smaller first steps */
#define FIRST_STEP 0.3
#define STEP_FALLS 0.2  /* from run to run */
#define LONGER     1.3  /* after steps that all went up */
#define SHORTER    0.85 /* after a step that went too far */
#define LINE_STEPS 12
#define STEP_LEAST 1e-12

void ascent_free(struct ascent *ascent)
{
    if (!ascent)
        return;
    free(ascent->start);
    free(ascent->best);
    free(ascent->work);
    free(ascent);
}

enum embtier_err ascent_new(uint32_t count, struct ascent **ret_ascent)
{
    _cleanup_(ascent_freep) struct ascent *a = calloc(1, sizeof(*a));

    if (!a)
        return EMBTIER_NO_MEMORY;
    a->count = count;
    a->start = calloc(count, sizeof(double));
    a->best = calloc(count, sizeof(double));
    a->work = calloc((uint64_t)count * (count + 6), sizeof(double));
    if (!a->start || !a->best || !a->work)
        return EMBTIER_NO_MEMORY;
    *ret_ascent = TAKE(a);
    return EMBTIER_OK;
}

/* The parts of ascent->work. */
struct run {
    struct ascent *a;
    ascent_fn *fn;
    void *ctx;
    double enough;
    double *point, *inside, *slopes, *before, *way, *image;
    double *space; /* count * count */
    uint32_t steps;
    double step;
};

static double dot(const double *a, const double *b, uint32_t count)
{
    double sum = 0;

    for (uint32_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

static bool is_done(const struct run *run)
{
    return run->steps == 0 || run->a->best_value > run->enough || !(run->step > STEP_LEAST);
}

/* A point outside counts as the nearest one inside, and the slope there leads back. */
static void look(struct run *run)
{
    struct ascent *const a = run->a;
    double value;

    for (uint32_t i = 0; i < a->count; i++)
        run->inside[i] = fmax(run->point[i], 0);
    value = run->fn(run->ctx, run->inside, run->slopes);
    for (uint32_t i = 0; i < a->count; i++)
        if (run->point[i] < 0)
            run->slopes[i] = fmax(run->slopes[i], 0) + 1;
    run->steps--;
    if (value > a->best_value) {
        a->best_value = value;
        memcpy(a->best, run->inside, a->count * sizeof(double));
    }
}

/* image = transpose(space) * vector */
static void into_space(const struct run *run, const double *vector)
{
    const uint32_t count = run->a->count;

    memset(run->image, 0, count * sizeof(double));
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < count; j++)
            run->image[j] += run->space[i * count + j] * vector[i];
}

/* False: the slopes vanish, so this is the highest point. */
static bool find_way(struct run *run)
{
    const uint32_t count = run->a->count;
    double length;

    into_space(run, run->slopes);
    length = sqrt(dot(run->image, run->image, count));
    if (!(length > DBL_MIN))
        return false;
    for (uint32_t i = 0; i < count; i++)
        run->way[i] = dot(run->space + i * count, run->image, count) / length;
    return true;
}

static void walk(struct run *run)
{
    const uint32_t count = run->a->count;
    uint32_t taken = 0;

    do {
        for (uint32_t i = 0; i < count; i++)
            run->point[i] += run->step * run->way[i];
        look(run);
        taken++;
        if (taken % 3 == 0)
            run->step *= LONGER;
    } while (dot(run->slopes, run->way, count) > 0 && taken < LINE_STEPS && !is_done(run));
    if (taken == 1)
        run->step *= SHORTER;
}

static void stretch(struct run *run)
{
    const uint32_t count = run->a->count;
    double length;

    for (uint32_t i = 0; i < count; i++)
        run->before[i] = run->slopes[i] - run->before[i];
    into_space(run, run->before);
    length = sqrt(dot(run->image, run->image, count));
    if (!(length > DBL_MIN))
        return;
    for (uint32_t i = 0; i < count; i++) {
        double *const row = run->space + i * count;
        const double along = dot(row, run->image, count) / length;

        for (uint32_t j = 0; j < count; j++)
            row[j] += (STRETCH - 1) * along * run->image[j] / length;
    }
}

static void run_once(struct run *run, const double *from, double first_step)
{
    const uint32_t count = run->a->count;

    memset(run->space, 0, (uint64_t)count * count * sizeof(double));
    for (uint32_t i = 0; i < count; i++)
        run->space[i * count + i] = 1;
    memcpy(run->point, from, count * sizeof(double));
    run->step = first_step;
    look(run);
    while (!is_done(run) && find_way(run)) {
        memcpy(run->before, run->slopes, count * sizeof(double));
        walk(run);
        stretch(run);
    }
}

void ascent_run(struct ascent *ascent, ascent_fn *fn, void *ctx, uint32_t steps, double enough)
{
    const uint32_t count = ascent->count;
    double *const work = ascent->work;
    struct run run = { .a = ascent,
                       .fn = fn,
                       .ctx = ctx,
                       .enough = enough,
                       .point = work,
                       .inside = work + count,
                       .slopes = work + 2 * count,
                       .before = work + 3 * count,
                       .way = work + 4 * count,
                       .image = work + 5 * count,
                       .space = work + 6 * count };
    double first_step = FIRST_STEP;

    ascent->best_value = -INFINITY;
    memcpy(ascent->best, ascent->start, count * sizeof(double));
    for (uint32_t i = 0; i < RUNS && !(ascent->best_value > enough); i++) {
        run.steps = MAX(steps / RUNS, 1);
        memcpy(ascent->start, ascent->best, count * sizeof(double));
        run_once(&run, ascent->start, first_step);
        first_step *= STEP_FALLS;
    }
    memcpy(ascent->start, ascent->best, count * sizeof(double));
}
