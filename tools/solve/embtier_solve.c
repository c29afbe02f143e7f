/* SPDX-License-Identifier: Apache-2.0 */
/* embtier_solve.c: the program embtier-solve, which solves one mixed-integer program and ends.
 *
 * A solver may crash, hang or take all memory, so it runs in a process of its own, under limits
 * that its parent sets (child_solver.h). The model comes on standard input, the answer goes to
 * standard output, and a line about a failure to standard error (solve_wire.h). The arguments are
 * libraries. The first that can be loaded and has the functions of a known version is used. */
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text/text_escape.h"
#include "tools/solve/cbc.h"
#include "tools/solve/highs.h"
#include "tools/solve/solve_wire.h"

static enum embtier_err read_all(void *bytes, size_t count, struct err_msg *msg)
{
    if (fread(bytes, 1, count, stdin) != count)
        return err_set(msg, EMBTIER_PROTOCOL, "standard input ends within the model");
    return EMBTIER_OK;
}

static enum embtier_err read_header(struct solve_request *ret_request, struct err_msg *msg)
{
    TRY(read_all(ret_request, sizeof(*ret_request), msg));
    if (ret_request->magic != SOLVE_REQUEST_MAGIC)
        return err_set(msg, EMBTIER_PROTOCOL,
                       "standard input holds no model; embtier runs this program by itself");
    if (ret_request->column_count < 1 || ret_request->column_count > SOLVE_ENTRIES_MAX ||
        ret_request->row_count > SOLVE_ENTRIES_MAX || ret_request->entry_count > SOLVE_ENTRIES_MAX)
        return err_set(msg, EMBTIER_TOO_LARGE, "the model is too large");
    return EMBTIER_OK;
}

static enum embtier_err read_array(void *ret_array, uint64_t count, size_t each,
                                   struct err_msg *msg)
{
    _cleanup_(freep) void *array = calloc(MAX(count, 1), each);

    if (!array)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    TRY(read_all(array, count * each, msg));
    *(void **)ret_array = TAKE(array);
    return EMBTIER_OK;
}

static enum embtier_err check_indices(const struct milp *milp, struct err_msg *msg)
{
    for (uint32_t i = 0; i < milp->row_count; i++)
        if (milp->row_starts[i] > milp->row_starts[i + 1])
            return err_set(msg, EMBTIER_PROTOCOL, "the model's rows are in disorder");
    for (uint32_t i = 0; i < milp->entry_count; i++)
        if (milp->columns[i] >= milp->column_count)
            return err_set(msg, EMBTIER_PROTOCOL, "the model has no column %u", milp->columns[i]);
    if (milp->row_starts[milp->row_count] != milp->entry_count)
        return err_set(msg, EMBTIER_PROTOCOL, "the model's rows do not end with its entries");
    return EMBTIER_OK;
}

static enum embtier_err read_model(struct solve_request *ret_request, struct milp *milp,
                                   struct err_msg *msg)
{
    TRY(read_header(ret_request, msg));
    milp->column_count = ret_request->column_count;
    milp->row_count = ret_request->row_count;
    milp->entry_count = ret_request->entry_count;
    milp->lower = ret_request->lower;
    TRY(read_array(&milp->row_lower, milp->row_count, sizeof(double), msg));
    TRY(read_array(&milp->row_upper, milp->row_count, sizeof(double), msg));
    TRY(read_array(&milp->start, milp->column_count, sizeof(double), msg));
    TRY(read_array(&milp->row_starts, (uint64_t)milp->row_count + 1, sizeof(uint32_t), msg));
    TRY(read_array(&milp->columns, milp->entry_count, sizeof(uint32_t), msg));
    TRY(read_array(&milp->values, milp->entry_count, sizeof(double), msg));
    return check_indices(milp, msg);
}

/* The reply goes to a descriptor that a library's printing does not reach. */
static enum embtier_err write_reply(FILE *out, const struct milp *milp, const double *values,
                                    const struct solve_reply *reply, struct err_msg *msg)
{
    if (fwrite(reply, sizeof(*reply), 1, out) != 1 ||
        fwrite(values, sizeof(*values), milp->column_count, out) != milp->column_count ||
        fflush(out) != 0)
        return err_set_errno(msg, errno, "standard output");
    return EMBTIER_OK;
}

/* UNSUPPORTED: another library may do. */
static enum embtier_err solve(void *library, const struct milp *milp,
                              const struct solve_request *request, double *ret_values,
                              struct solve_reply *ret_reply, struct err_msg *msg)
{
    double *const ret_bound = &ret_reply->bound;

    if (highs_is_in(library)) {
        highs_name(library, ret_reply->solver, sizeof(ret_reply->solver));
        return highs_solve(library, milp, request->nodes, request->gap, ret_values, ret_bound, msg);
    }
    if (cbc_is_in(library)) {
        cbc_name(library, ret_reply->solver, sizeof(ret_reply->solver));
        return cbc_solve(library, milp, request->nodes, request->gap, ret_values, ret_bound, msg);
    }
    return err_set(msg, EMBTIER_UNSUPPORTED, "the library is neither HiGHS nor CBC");
}

/* Why libraries were not taken. A file that is not there is no news if another library solves. */
struct refusals {
    struct err_msg all, present;
};

PRINTF_LIKE(3, 4)
static void refuse(struct refusals *refusals, bool is_present, const char *format, ...)
{
    char text[sizeof(refusals->all.text)];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    err_append(&refusals->all, "%s%s", refusals->all.text[0] ? "; " : "", text);
    if (is_present)
        err_append(&refusals->present, "%s%s", refusals->present.text[0] ? "; " : "", text);
}

/* The loader's text begins with the file that is missing, which may be another one that @path
 * needs. */
static bool is_missing(const char *path, const char *error)
{
    return strncmp(error, path, strlen(path)) == 0 && strstr(error, strerror(ENOENT));
}

/* Returns NULL if the library cannot be loaded. */
static void *load(const char *path, struct refusals *refusals)
{
    void *const library = *path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    const char *error;

    if (library)
        return library;
    error = *path ? dlerror() : "a library has no name";
    refuse(refusals, !is_missing(path, error), "%s", error);
    return NULL;
}

static enum embtier_err fail(enum embtier_err err, const struct err_msg *reason,
                             const struct refusals *refusals, struct err_msg *msg)
{
    return err_set(msg, err, "%s%s%s", reason->text, refusals->present.text[0] ? "; " : "",
                   refusals->present.text);
}

/* Tries one library after the other. @paths ends with NULL, and has at least one. */
static enum embtier_err solve_somehow(char **paths, const struct milp *milp,
                                      const struct solve_request *request, double *ret_values,
                                      struct solve_reply *ret_reply, struct err_msg *msg)
{
    struct refusals refusals = { 0 };

    for (; *paths; paths++) {
        void *const library = load(*paths, &refusals);
        struct err_msg reason = { { 0 } };
        enum embtier_err err;

        if (!library)
            continue;
        err = solve(library, milp, request, ret_values, ret_reply, &reason);
        if (err != EMBTIER_UNSUPPORTED) {
            text_fit(refusals.present.text, ret_reply->refused, sizeof(ret_reply->refused));
            return err == EMBTIER_OK ? err : fail(err, &reason, &refusals, msg);
        }
        refuse(&refusals, true, "%s: %s", *paths, reason.text);
    }
    return err_set(msg, EMBTIER_UNSUPPORTED, "%s", refusals.all.text);
}

static enum embtier_err run(char **libraries, FILE *out, struct err_msg *msg)
{
    _cleanup_(milp_freep) struct milp *milp = calloc(1, sizeof(*milp));
    _cleanup_(freep) double *values = NULL;
    struct solve_request request = { 0 };
    struct solve_reply reply = { .magic = SOLVE_REPLY_MAGIC, .bound = -INFINITY };

    if (!milp)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    TRY(read_model(&request, milp, msg));
    reply.column_count = milp->column_count;
    values = calloc(milp->column_count, sizeof(*values));
    if (!values)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    TRY(solve_somehow(libraries, milp, &request, values, &reply, msg));
    return write_reply(out, milp, values, &reply, msg);
}

/* Moves standard output away, and lets all that is printed go to standard error. */
static FILE *take_output(void)
{
    const int fd = dup(STDOUT_FILENO);

    if (fd < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        return NULL;
    return fdopen(fd, "w");
}

/* CBC and the wheel of HiGHS need BLAS. OpenBLAS starts a thread for each processor as soon as it
 * is loaded, and each takes about 170 MB of address space: with 16, none of our 2 GiB are left. */
static void want_one_thread(void)
{
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    setenv("OMP_NUM_THREADS", "1", 1);
}

int main(int argc, char **argv)
{
    struct err_msg msg = { { 0 } };
    FILE *out;

    if (argc < 2) {
        fprintf(stderr, "usage: embtier-solve LIBRARY... < model > answer\n");
        return 2;
    }
    want_one_thread();
    out = take_output();
    if (!out || run(argv + 1, out, &msg) != EMBTIER_OK) {
        fflush(stdout); /* the reason is the last line */
        fprintf(stderr, "%s\n", msg.text);
        return 1;
    }
    return 0;
}
