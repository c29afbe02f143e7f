/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/solve/highs.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HIGHS_VERSION   1
#define ROWWISE         2
#define MINIMIZE        1
#define TYPE_REAL       0
#define TYPE_INTEGER    1
#define STATUS_ERROR    (-1)
#define TOLERANCE       1e-9
#define SOLUTION_EXISTS 2 /* the value of primal_solution_status */

/* X(return type, name, arguments). HighsInt is int, as open_highs() confirms. */
#define HIGHS_FUNCTIONS(X)                                                                         \
    X(int, versionMajor, (void))                                                                   \
    X(void *, create, (void))                                                                      \
    X(void, destroy, (void *))                                                                     \
    X(int, getSizeofHighsInt, (const void *))                                                      \
    X(int, setBoolOptionValue, (void *, const char *, int))                                        \
    X(int, setIntOptionValue, (void *, const char *, int))                                         \
    X(int, setDoubleOptionValue, (void *, const char *, double))                                   \
    X(int, setStringOptionValue, (void *, const char *, const char *))                             \
    X(int, passMip,                                                                                \
      (void *, int, int, int, int, int, double, const double *, const double *, const double *,    \
       const double *, const double *, const int *, const int *, const double *, const int *))     \
    X(int, setSolution, (void *, const double *, const double *, const double *, const double *))  \
    X(int, run, (void *))                                                                          \
    X(int, getIntInfoValue, (const void *, const char *, int *))                                   \
    X(int, getDoubleInfoValue, (const void *, const char *, double *))                             \
    X(int, getSolution, (const void *, double *, double *, double *, double *))

struct highs {
#define X(type, name, arguments) type(*name) arguments;
    HIGHS_FUNCTIONS(X)
#undef X
    void *model;
};

static void close_highs(struct highs *h)
{
    if (h->model)
        h->destroy(h->model);
}

bool highs_is_in(void *library)
{
    return dlsym(library, "Highs_versionMajor") != NULL;
}

void highs_name(void *library, char *ret_name, size_t bytes)
{
    const char *(*version)(void);

    *(void **)&version = dlsym(library, "Highs_version");
    snprintf(ret_name, bytes, "HiGHS%s%s", version ? " " : "", version ? version() : "");
}

static enum embtier_err find_functions(struct highs *h, void *library, struct err_msg *msg)
{
#define X(type, name, arguments)                                                                   \
    *(void **)&h->name = dlsym(library, "Highs_" #name);                                           \
    if (!h->name)                                                                                  \
        return err_set(msg, EMBTIER_UNSUPPORTED, "HiGHS has no function Highs_" #name);
    HIGHS_FUNCTIONS(X)
#undef X
    return EMBTIER_OK;
}

static enum embtier_err open_highs(struct highs *h, void *library, struct err_msg *msg)
{
    TRY(find_functions(h, library, msg));
    if (h->versionMajor() != HIGHS_VERSION)
        return err_set(msg, EMBTIER_UNSUPPORTED, "HiGHS has version %d; allowed: %d",
                       h->versionMajor(), HIGHS_VERSION);
    h->model = h->create();
    if (!h->model)
        return err_set(msg, EMBTIER_NO_MEMORY, "HiGHS makes no model");
    if (h->getSizeofHighsInt(h->model) != (int)sizeof(int))
        return err_set(msg, EMBTIER_UNSUPPORTED, "HiGHS was built with integers of %d bytes",
                       h->getSizeofHighsInt(h->model));
    return EMBTIER_OK;
}

/* All that makes two runs alike: one thread, the default seed, and no stop by the clock. With the
 * default tolerance of 1e-6, a room of 8 TB may be too full by 8 MB. */
static enum embtier_err set_options(struct highs *h, uint32_t nodes, double gap,
                                    struct err_msg *msg)
{
    if (h->setBoolOptionValue(h->model, "output_flag", 0) == STATUS_ERROR ||
        h->setIntOptionValue(h->model, "threads", 1) == STATUS_ERROR ||
        h->setStringOptionValue(h->model, "parallel", "off") == STATUS_ERROR ||
        h->setIntOptionValue(h->model, "mip_max_nodes", (int)nodes) == STATUS_ERROR ||
        h->setDoubleOptionValue(h->model, "mip_rel_gap", gap) == STATUS_ERROR ||
        h->setDoubleOptionValue(h->model, "mip_feasibility_tolerance", TOLERANCE) == STATUS_ERROR ||
        h->setDoubleOptionValue(h->model, "primal_feasibility_tolerance", TOLERANCE) ==
            STATUS_ERROR)
        return err_set(msg, EMBTIER_UNSUPPORTED, "HiGHS refuses an option");
    return EMBTIER_OK;
}

struct column_parts {
    double *cost, *lower, *upper;
    int *types;
};

static void free_columns(struct column_parts *c)
{
    free(c->cost);
    free(c->lower);
    free(c->upper);
    free(c->types);
}

static enum embtier_err make_columns(const struct milp *milp, struct column_parts *c)
{
    c->cost = calloc(milp->column_count, sizeof(*c->cost));
    c->lower = calloc(milp->column_count, sizeof(*c->lower));
    c->upper = calloc(milp->column_count, sizeof(*c->upper));
    c->types = calloc(milp->column_count, sizeof(*c->types));
    if (!c->cost || !c->lower || !c->upper || !c->types)
        return EMBTIER_NO_MEMORY;
    for (uint32_t i = 0; i < milp->column_count; i++) {
        c->upper[i] = 1;
        c->types[i] = TYPE_INTEGER;
    }
    c->cost[0] = 1;
    c->lower[0] = milp->lower;
    c->types[0] = TYPE_REAL;
    return EMBTIER_OK;
}

static enum embtier_err pass_model(struct highs *h, const struct milp *milp, struct err_msg *msg)
{
    _cleanup_(free_columns) struct column_parts c = { 0 };

    if (make_columns(milp, &c) != EMBTIER_OK)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    if (h->passMip(h->model, (int)milp->column_count, (int)milp->row_count, (int)milp->entry_count,
                   ROWWISE, MINIMIZE, 0, c.cost, c.lower, c.upper, milp->row_lower, milp->row_upper,
                   (const int *)milp->row_starts, (const int *)milp->columns, milp->values,
                   c.types) == STATUS_ERROR)
        return err_set(msg, EMBTIER_INTERNAL, "HiGHS refuses the model");
    if (h->setSolution(h->model, milp->start, NULL, NULL, NULL) == STATUS_ERROR)
        return err_set(msg, EMBTIER_INTERNAL, "HiGHS refuses the start");
    return EMBTIER_OK;
}

static enum embtier_err take_solution(struct highs *h, const struct milp *milp, double *ret_values,
                                      double *ret_bound, struct err_msg *msg)
{
    _cleanup_(freep) double *rows = calloc(milp->row_count, sizeof(*rows));
    int status = 0;

    if (!rows)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    if (h->getIntInfoValue(h->model, "primal_solution_status", &status) == STATUS_ERROR ||
        status != SOLUTION_EXISTS)
        return err_set(msg, EMBTIER_NOT_FOUND, "HiGHS found no placement");
    if (h->getDoubleInfoValue(h->model, "mip_dual_bound", ret_bound) == STATUS_ERROR)
        *ret_bound = -INFINITY;
    if (h->getSolution(h->model, ret_values, NULL, rows, NULL) == STATUS_ERROR)
        return err_set(msg, EMBTIER_NOT_FOUND, "HiGHS gives no solution");
    return EMBTIER_OK;
}

enum embtier_err highs_solve(void *library, const struct milp *milp, uint32_t nodes, double gap,
                             double *ret_values, double *ret_bound, struct err_msg *msg)
{
    _cleanup_(close_highs) struct highs h = { 0 };

    TRY(open_highs(&h, library, msg));
    TRY(set_options(&h, nodes, gap, msg));
    TRY(pass_model(&h, milp, msg));
    if (h.run(h.model) == STATUS_ERROR)
        return err_set(msg, EMBTIER_INTERNAL, "HiGHS failed");
    return take_solution(&h, milp, ret_values, ret_bound, msg);
}
