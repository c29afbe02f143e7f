/* SPDX-License-Identifier: Apache-2.0 */
/* notify.h: tells the service manager the server's state, as sd_notify(3) does. Does
 * nothing without a manager. Waits up to a second for one that does not read, but only
 * where it has to know. */
#ifndef EMBTIER_DAEMON_CONTROL_PROCESS_NOTIFY_H
#define EMBTIER_DAEMON_CONTROL_PROCESS_NOTIFY_H

void notify_ready(void);
void notify_stopping(void);
void notify_status(const char *line);

#endif
