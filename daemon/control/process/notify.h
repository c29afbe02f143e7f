/* SPDX-License-Identifier: Apache-2.0 */
/* notify.h: tells the service manager the server's state, as sd_notify(3) does. Does
 * nothing without a manager. Waits up to a second for one that does not read, but only
 * where it has to know. */
#ifndef EMBTIER_DAEMON_CONTROL_PROCESS_NOTIFY_H
#define EMBTIER_DAEMON_CONTROL_PROCESS_NOTIFY_H

#include <stdint.h>

void notify_ready(void);
/* Files are read again; notify_ready() follows. */
void notify_reloading(void);
void notify_stopping(void);
void notify_status(const char *line);
/* Tells the manager's watchdog that the server is alive, and waits for nothing. */
void notify_alive(void);

/* Returns the time after which the manager takes a silent server for hung; 0: it does not watch. */
uint64_t notify_watchdog_ns(void);

#endif
