/* SPDX-License-Identifier: Apache-2.0 */
/* answer.h: turns the server's answer to a batch's last request into an error and a message.
 * Thread: the connection's. */
#ifndef EMBTIER_CLIENT_LIB_BATCH_ANSWER_H
#define EMBTIER_CLIENT_LIB_BATCH_ANSWER_H

#include "base/err.h"
#include "client/include/embtier.h"

/* Returns the result's error; if it is one, the connection's message explains it. */
MUST_CHECK enum embtier_err answer_tell(const struct embtier_batch *batch);

#endif
