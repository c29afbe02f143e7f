/* SPDX-License-Identifier: Apache-2.0 */
/* notify.h: tells the service manager where we are (sd_notify). Nothing happens where there is
 * none. Siblings: notify_systemd.c, notify_none.c. */
#ifndef EMBTIER_DAEMON_NOTIFY_H
#define EMBTIER_DAEMON_NOTIFY_H

void notify_ready(void);
void notify_stopping(void);
void notify_status(const char *line);

#endif
