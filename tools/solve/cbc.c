/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/solve/cbc.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES_FOR_ONE 50    /* nodes of CBC for one of HiGHS */
#define COLUMNS       16384 /* a node of more takes longer, by the square of their number */
#define INCREMENT     1e-5  /* CBC's default */

/* X(return type, name, arguments). CoinBigIndex is int. */
#define CBC_FUNCTIONS(X)                                                                           \
    X(void *, newModel, (void))                                                                    \
    X(void, deleteModel, (void *))                                                                 \
    X(void, loadProblem,                                                                           \
      (void *, int, int, const int *, const int *, const double *, const double *, const double *, \
       const double *, const double *, const double *))                                            \
    X(void, setInteger, (void *, int))                                                             \
    X(void, setMIPStartI, (void *, int, const int *, const double *))                              \
    X(void, setParameter, (void *, const char *, const char *))                                    \
    X(void, setLogLevel, (void *, int))                                                            \
    X(int, solve, (void *))                                                                        \
    X(const double *, bestSolution, (void *))                                                      \
    X(double, getBestPossibleObjValue, (void *))

struct cbc {
#define X(type, name, arguments) type(*name) arguments;
    CBC_FUNCTIONS(X)
#undef X
    void *model;
};

static void close_cbc(struct cbc *cbc)
{
    if (cbc->model)
        cbc->deleteModel(cbc->model);
}

bool cbc_is_in(void *library)
{
    return dlsym(library, "Cbc_newModel") != NULL;
}

void cbc_name(void *library, char *ret_name, size_t bytes)
{
    const char *(*version)(void);

    *(void **)&version = dlsym(library, "Cbc_getVersion");
    snprintf(ret_name, bytes, "CBC%s%s", version ? " " : "", version ? version() : "");
}

static enum embtier_err open_cbc(struct cbc *cbc, void *library, struct err_msg *msg)
{
#define X(type, name, arguments)                                                                   \
    *(void **)&cbc->name = dlsym(library, "Cbc_" #name);                                           \
    if (!cbc->name)                                                                                \
        return err_set(msg, EMBTIER_UNSUPPORTED, "CBC has no function Cbc_" #name);
    CBC_FUNCTIONS(X)
#undef X
    cbc->model = cbc->newModel();
    if (!cbc->model)
        return err_set(msg, EMBTIER_NO_MEMORY, "CBC makes no model");
    return EMBTIER_OK;
}

/* CBC takes the entries by column. */
struct by_column {
    int *starts; /* column_count + 1 */
    int *rows;   /* entry_count */
    double *values;
    double *cost, *lower, *upper; /* column_count */
};

static void free_columns(struct by_column *c)
{
    free(c->starts);
    free(c->rows);
    free(c->values);
    free(c->cost);
    free(c->lower);
    free(c->upper);
}

static enum embtier_err new_columns(const struct milp *milp, struct by_column *c)
{
    c->starts = calloc((uint64_t)milp->column_count + 1, sizeof(*c->starts));
    c->rows = calloc((uint64_t)milp->entry_count + 1, sizeof(*c->rows));
    c->values = calloc((uint64_t)milp->entry_count + 1, sizeof(*c->values));
    c->cost = calloc(milp->column_count, sizeof(*c->cost));
    c->lower = calloc(milp->column_count, sizeof(*c->lower));
    c->upper = calloc(milp->column_count, sizeof(*c->upper));
    if (!c->starts || !c->rows || !c->values || !c->cost || !c->lower || !c->upper)
        return EMBTIER_NO_MEMORY;
    for (uint32_t i = 0; i < milp->column_count; i++)
        c->upper[i] = 1;
    c->cost[0] = 1;
    c->lower[0] = milp->lower;
    return EMBTIER_OK;
}

/* Counts the entries of each column, then puts each entry at its column's end so far. At last, the
 * ends are the starts of the next columns. */
static void turn(const struct milp *milp, struct by_column *c)
{
    for (uint32_t i = 0; i < milp->entry_count; i++)
        c->starts[milp->columns[i] + 1]++;
    for (uint32_t i = 0; i < milp->column_count; i++)
        c->starts[i + 1] += c->starts[i];
    for (uint32_t row = 0; row < milp->row_count; row++)
        for (uint32_t i = milp->row_starts[row]; i < milp->row_starts[row + 1]; i++) {
            const int at = c->starts[milp->columns[i]]++;

            c->rows[at] = (int)row;
            c->values[at] = milp->values[i];
        }
    memmove(c->starts + 1, c->starts, milp->column_count * sizeof(*c->starts));
    c->starts[0] = 0;
}

static enum embtier_err pass_start(struct cbc *cbc, const struct milp *milp)
{
    _cleanup_(freep) int *columns = calloc(milp->column_count, sizeof(*columns));

    if (!columns)
        return EMBTIER_NO_MEMORY;
    for (uint32_t i = 0; i < milp->column_count; i++)
        columns[i] = (int)i;
    cbc->setMIPStartI(cbc->model, (int)milp->column_count, columns, milp->start);
    return EMBTIER_OK;
}

static enum embtier_err pass_model(struct cbc *cbc, const struct milp *milp)
{
    _cleanup_(free_columns) struct by_column c = { 0 };

    TRY(new_columns(milp, &c));
    turn(milp, &c);
    cbc->loadProblem(cbc->model, (int)milp->column_count, (int)milp->row_count, c.starts, c.rows,
                     c.values, c.lower, c.upper, c.cost, milp->row_lower, milp->row_upper);
    for (uint32_t i = 1; i < milp->column_count; i++)
        cbc->setInteger(cbc->model, (int)i);
    return pass_start(cbc, milp);
}

/* Within 20 nodes CBC improves hardly any start, since it makes few searches beside them once it
 * has one. HiGHS, which makes many, takes 60 s for 20 nodes of 14,601 columns, and CBC 18 s for
 * 1,000. With 68,673 columns it takes 23 s for 60. */
static int node_limit(const struct milp *milp, uint32_t nodes)
{
    const double share = fmin((double)COLUMNS / milp->column_count, 1);

    return (int)fmin(fmax(NODES_FOR_ONE * share * share, 1) * nodes, INT_MAX);
}

/* CBC uses one thread and its default seed unless told otherwise. */
static void set_parameters(struct cbc *cbc, int nodes, double gap)
{
    char text[32];

    cbc->setLogLevel(cbc->model, 0);
    snprintf(text, sizeof(text), "%d", nodes);
    cbc->setParameter(cbc->model, "maxNodes", text);
    snprintf(text, sizeof(text), "%g", gap);
    cbc->setParameter(cbc->model, "ratioGap", text);
}

/* CBC looks for no answer that is better by less than its increment, ends within @gap, and then
 * calls its answer the bound. */
static double lowered_bound(double bound, double answer, double gap)
{
    return fmin(bound, answer * (1 - gap) - INCREMENT);
}

enum embtier_err cbc_solve(void *library, const struct milp *milp, uint32_t nodes, double gap,
                           double *ret_values, double *ret_bound, struct err_msg *msg)
{
    _cleanup_(close_cbc) struct cbc cbc = { 0 };
    const double *values;

    TRY(open_cbc(&cbc, library, msg));
    if (pass_model(&cbc, milp) != EMBTIER_OK)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    set_parameters(&cbc, node_limit(milp, nodes), gap);
    (void)cbc.solve(cbc.model);
    values = cbc.bestSolution(cbc.model);
    if (!values)
        return err_set(msg, EMBTIER_NOT_FOUND, "CBC found no placement");
    memcpy(ret_values, values, milp->column_count * sizeof(*values));
    *ret_bound = lowered_bound(cbc.getBestPossibleObjValue(cbc.model), values[0], gap);
    return EMBTIER_OK;
}
