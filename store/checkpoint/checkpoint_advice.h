/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_advice.h: what messages say of checkpoints to a user that starts a server: which there
 * are, and how one gets over damage. Thread: any. */
#ifndef EMBTIER_STORE_CHECKPOINT_CHECKPOINT_ADVICE_H
#define EMBTIER_STORE_CHECKPOINT_CHECKPOINT_ADVICE_H

#include <stdint.h>

#include "base/err.h"
#include "store/checkpoint/checkpoint_record.h"

struct checkpoint_shelf;

/* checkpoint_read() of one that a person has named; if it is NOT_FOUND, the message says which
 * there are, the newest ones first. */
MUST_CHECK enum embtier_err checkpoint_read_named(const struct checkpoint_shelf *shelf, uint64_t id,
                                                  struct checkpoint_record **ret_record,
                                                  struct err_msg *msg);
/* Adds to a message (may be NULL) about damage of what is no checkpoint's which one all tables can
 * be put back to; nothing if there is none. */
void checkpoint_advise(const struct checkpoint_shelf *shelf, struct err_msg *msg);
/* The same where a crash has to be got over, and the newest one is in the way. */
void checkpoint_advise_after_crash(struct err_msg *msg);

#endif
