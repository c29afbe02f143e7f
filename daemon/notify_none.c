/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/notify.h"

void notify_ready(void)
{
}

void notify_stopping(void)
{
}

void notify_status(const char *line)
{
    (void)line;
}
