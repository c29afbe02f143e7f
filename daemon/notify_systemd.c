/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/notify.h"

#include <systemd/sd-daemon.h>

/* A failure here concerns nobody but the service manager, which has its own time limit. */
void notify_ready(void)
{
    (void)sd_notify(0, "READY=1\nSTATUS=serving");
}

void notify_stopping(void)
{
    (void)sd_notify(0, "STOPPING=1");
}

void notify_status(const char *line)
{
    /* Work that goes on is more time wanted. */
    (void)sd_notifyf(0, "STATUS=%s\nEXTEND_TIMEOUT_USEC=30000000", line);
}
