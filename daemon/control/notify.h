/* SPDX-License-Identifier: Apache-2.0 */
/* notify.h: tells the service manager where we are, as sd_notify(3) does. Nothing happens where
 * there is none. A manager that does not read is waited for a second where it has to know, and else
 * not. */
#ifndef EMBTIER_DAEMON_CONTROL_NOTIFY_H
#define EMBTIER_DAEMON_CONTROL_NOTIFY_H

void notify_ready(void);
void notify_stopping(void);
void notify_status(const char *line);

#endif
