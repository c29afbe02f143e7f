/* SPDX-License-Identifier: Apache-2.0 */
/* solve_wire.h: the bytes between a command and embtier-solve, which are one build.
 *
 * Request: header; then row_lower, row_upper and start (doubles), row_starts and columns (32 bits),
 * values (doubles), each without gaps. Reply: header, then a double for each column. */
#ifndef EMBTIER_TOOLS_SOLVE_SOLVE_WIRE_H
#define EMBTIER_TOOLS_SOLVE_SOLVE_WIRE_H

#include <assert.h>
#include <stdint.h>

#define SOLVE_REQUEST_MAGIC UINT64_C(0x31514552564c5345) /* "ESLVREQ1" */
#define SOLVE_REPLY_MAGIC   UINT64_C(0x31504552564c5345) /* "ESLVREP1" */
/* More entries would not fit into the child's memory anyway. */
#define SOLVE_ENTRIES_MAX   (UINT32_C(1) << 24)
#define SOLVE_NAME_BYTES    64
#define SOLVE_REFUSED_BYTES 400

struct solve_request {
    uint64_t magic;
    uint32_t column_count, row_count, entry_count;
    uint32_t nodes; /* of branch and bound, at most */
    double gap;     /* relative; good enough */
    double lower;   /* of column 0 */
};

struct solve_reply {
    uint64_t magic;
    uint32_t column_count, unused;
    double bound;                      /* of column 0; -INFINITY: none */
    char solver[SOLVE_NAME_BYTES];     /* "HiGHS 1.15.1" */
    char refused[SOLVE_REFUSED_BYTES]; /* why libraries before it were not taken, or "" */
};

static_assert(sizeof(struct solve_request) == 40, "no gaps");
static_assert(sizeof(struct solve_reply) == 24 + SOLVE_NAME_BYTES + SOLVE_REFUSED_BYTES, "no gaps");

#endif
