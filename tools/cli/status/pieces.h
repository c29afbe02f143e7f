/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.h: pieces of output that `embtier stats` and `embtier status` have in common. */
#ifndef EMBTIER_TOOLS_CLI_STATUS_PIECES_H
#define EMBTIER_TOOLS_CLI_STATUS_PIECES_H

#include <stdbool.h>

#include "client/include/embtier.h"

struct json_t;

/* Each returns NULL when out of memory. @plan NULL: an older server, which has none. */
struct json_t *pieces_libraries(const struct embtier_status *status);
struct json_t *pieces_plan(const struct embtier_plan_info *plan);

struct plan_text {
    char text[256];
};
/* Writes one line into the caller's buffer and returns it. */
const char *pieces_plan_text(struct plan_text *buffer, const struct embtier_plan_info *plan);

/* Prints @value and frees it. @is_line: on one line, for programs that read a stream. Returns an
 * exit code. */
int pieces_print_json(struct json_t *value, bool is_line);

#endif
