/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_advice.h: adds advice about checkpoints to messages for a user that starts a server:
 * which exist, and how to get over damage. Thread: any. */
#ifndef EMBTIER_STORE_CHECKPOINT_CHECKPOINT_ADVICE_H
#define EMBTIER_STORE_CHECKPOINT_CHECKPOINT_ADVICE_H

#include <stdint.h>

#include "base/err.h"
#include "store/checkpoint/checkpoint_record.h"

struct checkpoint_shelf;

/* Calls checkpoint_read() for a checkpoint that a person has named. On NOT_FOUND the message says
 * which exist, the newest first. */
MUST_CHECK enum embtier_err checkpoint_read_named(const struct checkpoint_shelf *shelf, uint64_t id,
                                                  struct checkpoint_record **ret_record,
                                                  struct err_msg *msg);
/* Adds to a message (may be NULL) about damage outside checkpoints: the checkpoint to restore all
 * tables from. Adds nothing if there is none. */
void checkpoint_advise(const struct checkpoint_shelf *shelf, struct err_msg *msg);
/* Does the same if the newest checkpoint cannot be used in a start after a crash. */
void checkpoint_advise_after_crash(struct err_msg *msg);

#endif
