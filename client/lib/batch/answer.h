/* SPDX-License-Identifier: Apache-2.0 */
/* answer.h: what the server's answer to a batch's last request means, in words. Thread: the
 * connection's. */
#ifndef EMBTIER_CLIENT_LIB_BATCH_ANSWER_H
#define EMBTIER_CLIENT_LIB_BATCH_ANSWER_H

#include "base/err.h"
#include "client/include/embtier.h"

/* The result's error, with the connection's message if it is one. */
MUST_CHECK enum embtier_err answer_tell(const struct embtier_batch *batch);

#endif
