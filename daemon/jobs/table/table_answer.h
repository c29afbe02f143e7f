/* SPDX-License-Identifier: Apache-2.0 */
/* table_answer.h: answers that describe tables to clients. Thread: the control thread. */
#ifndef EMBTIER_DAEMON_JOBS_TABLE_TABLE_ANSWER_H
#define EMBTIER_DAEMON_JOBS_TABLE_TABLE_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct job_client;
struct table_info;
struct Embtier__TableInfo;
struct Embtier__TableSpec;

/* @ret_table borrows @info and @spec. */
void table_info_to_wire(const struct table_info *info, struct Embtier__TableSpec *spec,
                        struct Embtier__TableInfo *ret_table);
void answer_table(const struct job_client *client, const struct table_info *info);
/* Answers with a page of a list. Errors: page_new(). */
MUST_CHECK enum embtier_err answer_tables(const struct job_client *client, struct table_info *infos,
                                          uint32_t count, bool more, struct err_msg *msg);

#endif
