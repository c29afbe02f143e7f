/* SPDX-License-Identifier: Apache-2.0 */
/* source.h: the stream of samples that frames are made from, over lost connections. Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_TOP_SOURCE_H
#define EMBTIER_TOOLS_CLI_TOP_SOURCE_H

#include <stdbool.h>

#include "base/err.h"
#include "tools/cli/top/frame.h"
#include "tools/cli/top/sample.h"

struct source {
    struct embtier *server; /* borrowed */
    struct sample_parts parts;
    struct sample now;
    struct sample before;
    bool has_now;
    bool has_before;
    bool is_lost; /* the connection; the next two say why */
    enum embtier_err err;
    struct err_msg why;
};

#define SOURCE_INIT(connection)                                                                    \
    {                                                                                              \
        .server = (connection), .parts = SAMPLE_PARTS_INIT                                         \
    }

/* Asks the server. A lost connection is a state, not an error, and the next call tries to make a
 * new one; the first sample after that has no rates. NO_MEMORY. */
MUST_CHECK enum embtier_err source_next(struct source *source);
/* Makes a frame of the last samples; has_now must be true. NO_MEMORY. */
MUST_CHECK enum embtier_err source_frame(const struct source *source, struct frame *ret_frame);
/* Returns a line for people: the connection is lost, and why. */
struct lost_text {
    char text[sizeof(struct err_msg) + 64];
};
const char *source_lost_text(struct lost_text *buffer, const struct source *source);
void source_clear(struct source *source);

#endif
