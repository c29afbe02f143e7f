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
 * Shapes. A batch has any number of parts. Each part is one table and any number of row ids.
 * Several parts may name the same table. Ids are unsigned 64-bit. Rows of a part lie one after
 * another, dim numbers of the table's dtype each, in the order of the ids. In a batch with state,
 * each row's weights are followed by its optimizer's state. Ids and rows lie in memory shared with
 * the server: the library copies neither.
 *
 * Order. Requests of one connection that touch the same row take effect in the order in which they
 * were submitted. A row is read and written whole; a batch is not atomic over rows. A batch that is
 * refused (any error but IO, NO_SPACE, CORRUPT and DISCONNECTED) has changed nothing. If an id
 * occurs twice in a SET, the last one wins; in a push, its gradients are added up.
 *
 * Errors. Functions return enum embtier_err (embtier_err.h); embtier_message() has the details of
 * the last failure on a connection. Outputs are untouched on failure. After DISCONNECTED the
 * outcome of a create, drop or delete is unknown: it may have completed, or may still complete. The
 * same holds after a TIMEOUT for which the server was silent for timeout_ms. The lists of tables
 * and checkpoints show the current state. Statements about failures below are about all other
 * errors.
 *
 * Threads. A connection and everything made from it is used by one thread at a time; different
 * connections are independent. Connections do not survive fork(): the child must not use them, not
 * even to disconnect, and makes its own. A progress function must not call back into its
 * connection. The library runs one thread, during an export; it blocks all signals, so an
 * application's handlers do not run on it.
 *
 * Lifetimes. Tables, batches and groups end with their connection at the latest;
 * embtier_disconnect() frees them all. Pointers into a batch are valid until embtier_batch_free()
 * or embtier_disconnect(), also after the server is gone.
 *
 * Include this header: it includes all others, one for each subject. */
#ifndef EMBTIER_H
#define EMBTIER_H

#include "embtier_access.h"
#include "embtier_batch.h"
#include "embtier_checkpoint.h"
#include "embtier_common.h"
#include "embtier_compaction.h"
#include "embtier_connection.h"
#include "embtier_data.h"
#include "embtier_group.h"
#include "embtier_job.h"
#include "embtier_knob.h"
#include "embtier_plan.h"
#include "embtier_profile.h"
#include "embtier_request.h"
#include "embtier_reshard.h"
#include "embtier_session.h"
#include "embtier_status.h"
#include "embtier_table.h"
#include "embtier_transfer.h"

#endif
