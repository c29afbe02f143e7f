/* SPDX-License-Identifier: Apache-2.0 */
/* segment_copies.h: the segments of a request, and their tables, while the request begins.
 *
 * One machine for all operations: it copies the segments out of the client's region, each once, and
 * checks what all kinds of segments have in common. An operation checks the rest, its own fields.
 * The memory that a request needs depends on its segments. Until it has some, the copies are in
 * rules->scratch. That of a lookup or push also depends on the row lengths of its tables, which are
 * in rules->segment_tables until then. Thread: the home lane. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_SEGMENT_COPIES_H
#define EMBTIER_DAEMON_ENGINE_OPS_SEGMENT_COPIES_H

#include <stdint.h>

#include "daemon/engine/rows/request.h"

/* Sums over all segments of a request, neither more than rules->max_batch_rows. */
struct segment_sums {
    uint64_t ids;  /* in a push by ticket: bags */
    uint64_t bags; /* of a pooled lookup */
};

/* Copies the segments of a request of @form, and checks everything that needs no table: the user's
 * role, their number and place, unused fields, and sums. Also refuses all flags of the submission
 * but @flags. */
MUST_CHECK enum embtier_err
segment_copies_take(const struct request_rules *rules, struct session *session,
                    const struct op_submission *submission, uint32_t form, uint32_t flags,
                    struct segment_sums *ret_sums, struct refusal *ret_refusal);
/* Enters the tables of all copies, one after the other, and gives each to @take with @context.
 * PERMISSION: the user is not granted one of them. BUSY: it has too many bytes under way.
 * @take notes the table, which the operation has to leave from then on, also if @take refuses the
 * segment because it is wrong for its table. *@ret_refusal says why then, which @take fills in. */
MUST_CHECK enum embtier_err
segment_copies_enter(const struct request_rules *rules, struct session *session,
                     const struct op_submission *submission, uint32_t form,
                     enum embtier_err (*take)(void *context, uint32_t segment, struct table *table),
                     void *context, struct refusal *ret_refusal);
/* For @take: refuses @segment if its ids do not all lie in the region. */
MUST_CHECK enum embtier_err segment_ids_check(const struct session *session, uint32_t segment,
                                              uint64_t ids_offset, uint32_t id_count,
                                              struct refusal *ret_refusal);

/* Enters the table of @handle, named by segment @segment; UINT32_MAX: by none. The caller leaves it
 * with table_leave(). NO_TABLE, or DROPPED: it is being dropped. */
MUST_CHECK enum embtier_err segment_table_enter(const struct request_rules *rules, uint32_t segment,
                                                uint64_t handle, struct table **ret_table,
                                                struct refusal *ret_refusal);
/* Leaves the first @count tables in rules->segment_tables. */
void segment_tables_leave(const struct request_rules *rules, uint32_t count);

#endif
