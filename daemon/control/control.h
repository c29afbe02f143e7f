/* SPDX-License-Identifier: Apache-2.0 */
/* control.h: the control thread: accepts clients, answers control messages, makes and ends
 * sessions.
 *
 * One epoll loop on the calling thread. It never waits for a client (connection.h), nor for SSD:
 * what takes long goes to the workers. */
#ifndef EMBTIER_DAEMON_CONTROL_CONTROL_H
#define EMBTIER_DAEMON_CONTROL_CONTROL_H

#include "base/err.h"

struct control;
struct server_parts;

/* Listens on the configured socket. LOCKED when another server does; a socket file nobody listens
 * on is replaced. */
MUST_CHECK enum embtier_err control_new(const struct server_parts *parts,
                                        struct control **ret_control, struct err_msg *msg);
/* Serves until a signal asks for a stop (@signal_fd is that of signals_open()), then tells every
 * client and waits for requests under way. */
MUST_CHECK enum embtier_err control_run(struct control *control, int signal_fd,
                                        struct err_msg *msg);
/* After which no job runs: the store may be closed. */
void control_end_jobs(struct control *control);
/* When no lane runs any more: one that has sent its last mail may still be about to wake us. */
void control_free(struct control *control);
DEFINE_CLEANUP(struct control, control_free)

#endif
