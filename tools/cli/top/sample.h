/* SPDX-License-Identifier: Apache-2.0 */
/* sample.h: all that `embtier top` asks of a server for one frame. Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_TOP_SAMPLE_H
#define EMBTIER_TOOLS_CLI_TOP_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "client/include/embtier.h"
#include "tools/cli/status/reading.h"

struct sample {
    struct reading reading;                      /* metrics and tables */
    uint64_t tables_ns;                          /* when the tables came, by the monotonic clock */
    struct embtier_session_list *sessions;       /* NULL: not known, or not for this user */
    struct embtier_compaction_list *compactions; /* the same */
};

/* Requests that the server answers. Older servers do not know all, and are not asked again. */
struct sample_parts {
    unsigned reading; /* bits of enum reading_part */
    bool sessions;
    bool compactions;
};
#define SAMPLE_PARTS_INIT                                                                          \
    {                                                                                              \
        READING_TABLES, true, true                                                                 \
    }

/* Asks the server, after a reconnect if the connection was lost. Errors are those of a request or
 * of embtier_reconnect_within(). */
MUST_CHECK enum embtier_err sample_get(struct embtier *server, struct sample_parts *parts,
                                       struct sample *ret_sample);
void sample_clear(struct sample *sample);

#endif
