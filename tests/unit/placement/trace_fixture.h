/* SPDX-License-Identifier: Apache-2.0 */
/* trace_fixture.h: a folder for trace files that goes with the test. */
#ifndef EMBTIER_TESTS_UNIT_PLACEMENT_TRACE_FIXTURE_H
#define EMBTIER_TESTS_UNIT_PLACEMENT_TRACE_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"

struct trace_fixture {
    char folder[256];
    char path[300]; /* of a file that does not exist yet */
};

static inline int trace_fixture_new(void **state)
{
    struct trace_fixture *fixture = calloc(1, sizeof(*fixture));
    const char *tmp = getenv("TMPDIR");

    if (!fixture)
        return -1;
    snprintf(fixture->folder, sizeof(fixture->folder), "%s/embtier-trace-XXXXXX",
             tmp ? tmp : "/tmp");
    if (!mkdtemp(fixture->folder)) {
        free(fixture);
        return -1;
    }
    snprintf(fixture->path, sizeof(fixture->path), "%s/trace", fixture->folder);
    *state = fixture;
    return 0;
}

static inline int trace_fixture_free(void **state)
{
    struct trace_fixture *const fixture = *state;

    unlink(fixture->path);
    rmdir(fixture->folder);
    free(fixture);
    return 0;
}

#endif
