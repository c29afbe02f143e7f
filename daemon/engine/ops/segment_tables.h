/* SPDX-License-Identifier: Apache-2.0 */
/* segment_tables.h: the tables of a request's segments, while the request begins.
 *
 * The memory that a lookup or push needs depends on the row lengths of its tables. So the tables
 * are entered before there is memory to write them down in. Until then rules->segment_tables has
 * them. Thread: the home lane. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_SEGMENT_TABLES_H
#define EMBTIER_DAEMON_ENGINE_OPS_SEGMENT_TABLES_H

#include <stdint.h>

#include "daemon/engine/rows/request.h"

/* Enters the table of @handle, named by segment @segment; UINT32_MAX: by none. The caller leaves it
 * with table_leave(). NULL: there is no such table, or it is being dropped; *@refusal says
 * which. */
struct table *segment_table_enter(const struct request_rules *rules, uint32_t segment,
                                  uint64_t handle, struct refusal *refusal);
/* Leaves the tables of the first @count segments. Entries of tables that were not entered are
 * NULL. */
void segment_tables_leave(const struct request_rules *rules, uint32_t count);

#endif
