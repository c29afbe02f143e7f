/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/lib/plans/mps.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/lib/bench.h"

#define GB 1e9

static void write_rows(FILE *file, const struct instance *x)
{
    fputs("NAME placement FREE\nROWS\n N largest\n", file);
    for (uint32_t i = 0; i < x->item_count; i++)
        fprintf(file, " E one%" PRIu32 "\n L item%" PRIu32 "\n", i, i);
    for (uint32_t g = 0; g < x->gpu_count; g++)
        fprintf(file, " L load%" PRIu32 "\n", g);
    for (uint32_t r = 0; r < x->room_count; r++)
        fprintf(file, " L room%" PRIu32 "\n", r);
}

static void write_column(FILE *file, const struct instance *x, uint32_t item, uint32_t place,
                         double unit_s)
{
    const double time = instance_time_s(x, item, place) / unit_s;

    fprintf(file, " x%" PRIu32 "_%" PRIu32 " one%" PRIu32 " 1\n", item, place, item);
    fprintf(file, " x%" PRIu32 "_%" PRIu32 " item%" PRIu32 " %.17g\n", item, place, item, time);
    fprintf(file, " x%" PRIu32 "_%" PRIu32 " load%" PRIu32 " %.17g\n", item, place,
            instance_gpu(x, place), time);
    fprintf(file, " x%" PRIu32 "_%" PRIu32 " room%" PRIu32 " %.17g\n", item, place,
            x->room_of_place[place], (double)x->bytes[item] / GB);
}

static void write_columns(FILE *file, const struct instance *x, double unit_s)
{
    fputs("COLUMNS\n T largest 1\n", file);
    for (uint32_t i = 0; i < x->item_count; i++)
        fprintf(file, " T item%" PRIu32 " -1\n", i);
    for (uint32_t g = 0; g < x->gpu_count; g++)
        fprintf(file, " T load%" PRIu32 " -1\n", g);
    fputs(" M1 'MARKER' 'INTORG'\n", file);
    for (uint32_t i = 0; i < x->item_count; i++)
        for (uint32_t place = 0; place < x->place_count; place++)
            if (instance_allows(x, i, place))
                write_column(file, x, i, place, unit_s);
    fputs(" M2 'MARKER' 'INTEND'\n", file);
}

static void write_limits(FILE *file, const struct instance *x)
{
    fputs("RHS\n", file);
    for (uint32_t i = 0; i < x->item_count; i++)
        fprintf(file, " RHS one%" PRIu32 " 1\n", i);
    for (uint32_t r = 0; r < x->room_count; r++)
        fprintf(file, " RHS room%" PRIu32 " %.17g\n", r, (double)x->room_bytes[r] / GB);
    fputs("BOUNDS\n", file);
    for (uint32_t i = 0; i < x->item_count; i++)
        for (uint32_t place = 0; place < x->place_count; place++)
            if (instance_allows(x, i, place))
                fprintf(file, " UP BND x%" PRIu32 "_%" PRIu32 " 1\n", i, place);
    fputs("ENDATA\n", file);
}

void mps_write(const char *path, const struct instance *x, double unit_s)
{
    FILE *const file = fopen(path, "we");

    assert(x->gpu_count > 0);
    if (!file)
        bench_die("%s cannot be written", path);
    write_rows(file, x);
    write_columns(file, x, unit_s);
    write_limits(file, x);
    if (fclose(file) != 0)
        bench_die("%s cannot be written", path);
}

/* Takes the value of a column above a half as a choice. */
static void read_line(char *line, const struct instance *x, uint32_t *ret_places)
{
    uint32_t item = UINT32_MAX, place = UINT32_MAX;
    char *rest = line;

    for (char *word = strsep(&rest, " \t\n"); word; word = strsep(&rest, " \t\n")) {
        char *end = word;
        double value;

        if (sscanf(word, "x%" SCNu32 "_%" SCNu32, &item, &place) == 2 || word[0] == '\0' ||
            word[0] == '*' || item >= x->item_count || place >= x->place_count)
            continue;
        value = strtod(word, &end);
        if (end != word && value > 0.5)
            ret_places[item] = place;
        return;
    }
}

bool mps_read_places(const char *path, const struct instance *x, uint32_t *ret_places)
{
    FILE *const file = fopen(path, "re");
    char *line = NULL;
    size_t room = 0;
    bool whole = true;

    for (uint32_t i = 0; i < x->item_count; i++)
        ret_places[i] = UINT32_MAX;
    if (!file)
        return false;
    while (getline(&line, &room, file) > 0)
        read_line(line, x, ret_places);
    free(line);
    (void)fclose(file);
    for (uint32_t i = 0; i < x->item_count; i++)
        whole = whole && ret_places[i] != UINT32_MAX;
    return whole;
}
