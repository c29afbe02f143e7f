/* SPDX-License-Identifier: Apache-2.0 */
/* embtier.h: libembtier, the C client of the embedding server embtierd.
 *
 *   struct embtier *server;
 *   struct embtier_table *users;
 *   struct embtier_batch *batch;
 *   embtier_connect(NULL, &server);
 *   embtier_table_open(server, "users", &users);
 *   embtier_batch_new(server, (struct embtier_part[]){ { users, 2 } }, 1, &batch);
 *   embtier_batch_ids(batch, 0)[0] = 7;
 *   embtier_batch_ids(batch, 0)[1] = 9;
 *   embtier_get(batch);
 *   const float *rows = embtier_batch_rows(batch, 0);   // 2 x dim numbers
 *
 * Shapes. A batch is any number of parts, each one table and any number of row ids; a table may
 * stand in several parts. Ids are unsigned 64-bit. Rows of a part lie one after another, dim
 * numbers of the table's dtype each, in the order of the ids. In a batch with state, each row's
 * weights are followed by its optimizer's state. Ids and rows lie in memory shared with the server:
 * the library copies neither.
 *
 * Order. Requests of one connection that touch the same row take effect in the order they were
 * submitted. A row is read and written whole; a batch is not atomic over rows; a batch that is
 * refused (any error but IO, NO_SPACE, CORRUPT and DISCONNECTED) changed nothing. The same id twice
 * in a SET: the last one wins; in a push: what it gets is added up.
 *
 * Errors. Functions return enum embtier_err (embtier_err.h); embtier_message() has the details of
 * the last failure on a connection. Outputs are untouched on failure. After DISCONNECTED, and after
 * TIMEOUT where it is the server that was silent for timeout_ms, it is not known what came of that
 * which the server was to make, drop or delete: it may have been done, or may be yet. The lists of
 * tables and checkpoints say. What is said below of failures is of all others.
 *
 * Threads. A connection and everything made from it is used by one thread at a time; different
 * connections are independent. Connections do not survive fork(): the child must not use them, not
 * even to disconnect, and makes its own. A progress function must not call back into its
 * connection. The one thread of the library's own, which an export has while it lasts, blocks all
 * signals: an application's handlers do not run on it.
 *
 * Lifetimes. Tables, batches and groups end with their connection at the latest;
 * embtier_disconnect() frees them all. Pointers into a batch are good until embtier_batch_free() or
 * embtier_disconnect(), also after the server is gone.
 *
 * Include this header: it has everything. The others are its parts, one for each subject. */
#ifndef EMBTIER_H
#define EMBTIER_H

#include "embtier_batch.h"
#include "embtier_checkpoint.h"
#include "embtier_common.h"
#include "embtier_connection.h"
#include "embtier_group.h"
#include "embtier_job.h"
#include "embtier_request.h"
#include "embtier_status.h"
#include "embtier_table.h"
#include "embtier_transfer.h"

#endif
