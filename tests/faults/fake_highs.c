/* SPDX-License-Identifier: Apache-2.0 */
/* fake_highs.c: a library with the functions of HiGHS that embtier-solve calls, which does as
 * EMBTIER_FAKE_SOLVER says.
 *
 * start: answers with the start that it got. crash: dies. exit: ends the program without an answer.
 * fail: prints a banner and reports an error. none: finds nothing. rubbish: answers with numbers
 * that are none. full: puts every table into each of its places, and claims that this takes no
 * time. bound: claims that nothing is as good as the start. print: prints without end. sleep: never
 * returns. nap: the same, waking up now and then. spin: the same, busily. memory: takes memory
 * until there is none. version: is of another version. Built with LACKS_RUN, it has no function
 * that solves. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#ifdef LACKS_RUN
#define Highs_run Highs_anotherName
#endif

static int column_count;
static double *start;

static int is(const char *way)
{
    const char *const set = getenv("EMBTIER_FAKE_SOLVER");

    return set && strcmp(set, way) == 0;
}

static void take_all_memory(void)
{
    for (;;) {
        char *const bytes = malloc(1 << 20);

        if (!bytes)
            abort();
        memset(bytes, 1, 1 << 20);
    }
}

EXPORT int Highs_versionMajor(void);
EXPORT int Highs_versionMajor(void)
{
    return is("version") ? 2 : 1;
}

EXPORT const char *Highs_version(void);
EXPORT const char *Highs_version(void)
{
    return is("version") ? "2.0.0" : "1.0.7";
}

EXPORT void *Highs_create(void);
EXPORT void *Highs_create(void)
{
    return &column_count;
}

EXPORT void Highs_destroy(void *highs);
EXPORT void Highs_destroy(void *highs)
{
    (void)highs;
    free(start);
}

EXPORT int Highs_getSizeofHighsInt(const void *highs);
EXPORT int Highs_getSizeofHighsInt(const void *highs)
{
    (void)highs;
    return (int)sizeof(int);
}

EXPORT int Highs_setBoolOptionValue(void *highs, const char *option, int value);
EXPORT int Highs_setBoolOptionValue(void *highs, const char *option, int value)
{
    (void)highs;
    (void)option;
    (void)value;
    return 0;
}

EXPORT int Highs_setIntOptionValue(void *highs, const char *option, int value);
EXPORT int Highs_setIntOptionValue(void *highs, const char *option, int value)
{
    (void)highs;
    (void)option;
    (void)value;
    return 0;
}

EXPORT int Highs_setDoubleOptionValue(void *highs, const char *option, double value);
EXPORT int Highs_setDoubleOptionValue(void *highs, const char *option, double value)
{
    (void)highs;
    (void)option;
    (void)value;
    return 0;
}

EXPORT int Highs_setStringOptionValue(void *highs, const char *option, const char *value);
EXPORT int Highs_setStringOptionValue(void *highs, const char *option, const char *value)
{
    (void)highs;
    (void)option;
    (void)value;
    return 0;
}

EXPORT int Highs_passMip(void *highs, int columns, int rows, int entries, int format, int sense,
                         double offset, const double *cost, const double *lower,
                         const double *upper, const double *row_lower, const double *row_upper,
                         const int *starts, const int *indices, const double *values,
                         const int *types);
EXPORT int Highs_passMip(void *highs, int columns, int rows, int entries, int format, int sense,
                         double offset, const double *cost, const double *lower,
                         const double *upper, const double *row_lower, const double *row_upper,
                         const int *starts, const int *indices, const double *values,
                         const int *types)
{
    (void)highs;
    (void)rows;
    (void)entries;
    (void)format;
    (void)sense;
    (void)offset;
    (void)cost;
    (void)lower;
    (void)upper;
    (void)row_lower;
    (void)row_upper;
    (void)starts;
    (void)indices;
    (void)values;
    (void)types;
    column_count = columns;
    return 0;
}

EXPORT int Highs_setSolution(void *highs, const double *values, const double *rows,
                             const double *duals, const double *row_duals);
EXPORT int Highs_setSolution(void *highs, const double *values, const double *rows,
                             const double *duals, const double *row_duals)
{
    (void)highs;
    (void)rows;
    (void)duals;
    (void)row_duals;
    start = malloc((size_t)column_count * sizeof(*start));
    if (start)
        memcpy(start, values, (size_t)column_count * sizeof(*start));
    return start ? 0 : -1;
}

EXPORT int Highs_run(void *highs);
EXPORT int Highs_run(void *highs)
{
    (void)highs;
    if (is("crash"))
        abort();
    if (is("exit"))
        _exit(0);
    if (is("memory"))
        take_all_memory();
    while (is("print"))
        printf("a solver that prints without end\n");
    while (is("sleep"))
        pause();
    while (is("nap"))
        usleep(700000);
    while (is("spin"))
        ;
    if (is("fail"))
        printf("a solver\nwith a banner\n");
    return is("fail") ? -1 : 0;
}

EXPORT int Highs_getIntInfoValue(const void *highs, const char *info, int *ret_value);
EXPORT int Highs_getIntInfoValue(const void *highs, const char *info, int *ret_value)
{
    (void)highs;
    (void)info;
    *ret_value = is("none") ? 0 : 2;
    return 0;
}

EXPORT int Highs_getDoubleInfoValue(const void *highs, const char *info, double *ret_value);
EXPORT int Highs_getDoubleInfoValue(const void *highs, const char *info, double *ret_value)
{
    (void)highs;
    (void)info;
    *ret_value = is("bound") ? 1.5 : is("rubbish") ? NAN : 0;
    return 0;
}

EXPORT int Highs_getSolution(const void *highs, double *ret_values, double *ret_duals,
                             double *ret_rows, double *ret_row_duals);
EXPORT int Highs_getSolution(const void *highs, double *ret_values, double *ret_duals,
                             double *ret_rows, double *ret_row_duals)
{
    (void)highs;
    (void)ret_duals;
    (void)ret_rows;
    (void)ret_row_duals;
    for (int i = 0; i < column_count; i++)
        ret_values[i] = is("rubbish") ? NAN : is("full") ? i > 0 : start[i];
    return 0;
}
