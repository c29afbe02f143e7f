/* SPDX-License-Identifier: Apache-2.0 */
/* fake_cbc.c: a library with the functions of CBC that embtier-solve calls. It answers with the
 * start that it got. Like a CBC whose OpenBLAS found no memory for its threads, it makes no model
 * if it was loaded without a limit of one thread. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static double *start;
static bool has_one_thread;

static bool is_one(const char *variable)
{
    const char *const value = getenv(variable);

    return value && strcmp(value, "1") == 0;
}

/* OpenBLAS reads these variables when it is loaded. */
__attribute__((constructor)) static void look_at_threads(void)
{
    has_one_thread = is_one("OPENBLAS_NUM_THREADS") && is_one("OMP_NUM_THREADS");
}

EXPORT const char *Cbc_getVersion(void);
EXPORT const char *Cbc_getVersion(void)
{
    return "2.0.3";
}

EXPORT void *Cbc_newModel(void);
EXPORT void *Cbc_newModel(void)
{
    return has_one_thread ? &start : NULL;
}

EXPORT void Cbc_deleteModel(void *model);
EXPORT void Cbc_deleteModel(void *model)
{
    (void)model;
    free(start);
}

EXPORT void Cbc_loadProblem(void *model, int columns, int rows, const int *starts,
                            const int *indices, const double *values, const double *lower,
                            const double *upper, const double *cost, const double *row_lower,
                            const double *row_upper);
EXPORT void Cbc_loadProblem(void *model, int columns, int rows, const int *starts,
                            const int *indices, const double *values, const double *lower,
                            const double *upper, const double *cost, const double *row_lower,
                            const double *row_upper)
{
    (void)model;
    (void)columns;
    (void)rows;
    (void)starts;
    (void)indices;
    (void)values;
    (void)lower;
    (void)upper;
    (void)cost;
    (void)row_lower;
    (void)row_upper;
}

EXPORT void Cbc_setInteger(void *model, int column);
EXPORT void Cbc_setInteger(void *model, int column)
{
    (void)model;
    (void)column;
}

EXPORT void Cbc_setMIPStartI(void *model, int count, const int *columns, const double *values);
EXPORT void Cbc_setMIPStartI(void *model, int count, const int *columns, const double *values)
{
    (void)model;
    (void)columns;
    start = malloc((size_t)count * sizeof(*start));
    if (start)
        memcpy(start, values, (size_t)count * sizeof(*start));
}

EXPORT void Cbc_setParameter(void *model, const char *name, const char *value);
EXPORT void Cbc_setParameter(void *model, const char *name, const char *value)
{
    (void)model;
    (void)name;
    (void)value;
}

EXPORT void Cbc_setLogLevel(void *model, int level);
EXPORT void Cbc_setLogLevel(void *model, int level)
{
    (void)model;
    (void)level;
}

EXPORT int Cbc_solve(void *model);
EXPORT int Cbc_solve(void *model)
{
    (void)model;
    return 0;
}

EXPORT const double *Cbc_bestSolution(void *model);
EXPORT const double *Cbc_bestSolution(void *model)
{
    (void)model;
    return start;
}

EXPORT double Cbc_getBestPossibleObjValue(void *model);
EXPORT double Cbc_getBestPossibleObjValue(void *model)
{
    (void)model;
    return -INFINITY;
}
