/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_answer.h: answers that describe checkpoints to clients. Thread: the control thread. */
#ifndef EMBTIER_DAEMON_JOBS_CHECKPOINT_JOBS_CHECKPOINT_ANSWER_H
#define EMBTIER_DAEMON_JOBS_CHECKPOINT_JOBS_CHECKPOINT_ANSWER_H

#include "base/err.h"

struct checkpoint_info;
struct checkpoint_page;
struct checkpoint_tables;
struct job_client;

/* @tables: the names of its tables, or NULL. */
void answer_checkpoint(const struct job_client *client, struct checkpoint_info *info,
                       struct checkpoint_tables *tables);
/* Errors: page_new(). */
MUST_CHECK enum embtier_err answer_checkpoints(const struct job_client *client,
                                               struct checkpoint_page *listed, struct err_msg *msg);

#endif
