/* SPDX-License-Identifier: Apache-2.0 */
/* signals.h: how the server reacts to each signal.
 *
 *   SIGTERM, SIGINT, SIGQUIT   a clean stop; for further ones see stop_patience.h
 *   SIGHUP                     reloads files that can change while the server runs
 *                              (daemon/jobs/reload/reload.h); the configuration cannot
 *   SIGKILL, SIGSTOP, faults   the system's own: ILL, TRAP, ABRT, BUS, FPE, SEGV, SYS
 *   all others                 nothing
 *
 * SIGTSTP (Ctrl-Z) does nothing either, because a suspended server would hold up all its clients.
 * SIGSTOP still suspends it. */
#ifndef EMBTIER_DAEMON_CONTROL_PROCESS_SIGNALS_H
#define EMBTIER_DAEMON_CONTROL_PROCESS_SIGNALS_H

#include <stdbool.h>

#include "base/err.h"

/* Call before any thread is made, so that all inherit it. Signals that the server handles wait from
 * here on until they are taken; the others are ignored. */
void signals_begin(void);
/* Opens a descriptor that is readable while a signal waits, and does not block. */
MUST_CHECK enum embtier_err signals_open(int *ret_fd, struct err_msg *msg);

enum signal_effect { SIGNAL_STOPS, SIGNAL_STOPS_ALREADY };
/* Takes waiting signals up to the first that asks for a stop, and logs the effect of each. False:
 * none asks for a stop. *@ret_reloads, which may be NULL, is set if one asks for a reload: without
 * it the server does not reload any more. */
bool signals_take_stop(int fd, enum signal_effect effect, bool *ret_reloads);

#endif
