/* SPDX-License-Identifier: Apache-2.0 */
/* console.h: the page that shows the server's state to people; from console.html. */
#ifndef EMBTIER_DAEMON_HTTP_CONSOLE_CONSOLE_H
#define EMBTIER_DAEMON_HTTP_CONSOLE_CONSOLE_H

#include <stddef.h>

extern const char console_html[]; /* without a final NUL */
extern const size_t console_html_bytes;

#endif
