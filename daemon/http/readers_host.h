/* SPDX-License-Identifier: Apache-2.0 */
/* readers_host.h: keeps pages of other sites from reading a server that listens on loopback.
 *
 * A site can give its own name the address 127.0.0.1 (DNS rebinding). A browser of this machine
 * then lets the site's scripts read what is served there. Such requests name the site in Host. */
#ifndef EMBTIER_DAEMON_HTTP_READERS_HOST_H
#define EMBTIER_DAEMON_HTTP_READERS_HOST_H

#include <stdbool.h>

/* True if @host, the value of Host, is localhost, a number, or @own, with or without a port. Also
 * if it is NULL: no browser leaves it out. */
bool readers_host_is_local(const char *host, const char *own);

#endif
