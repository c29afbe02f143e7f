/* SPDX-License-Identifier: Apache-2.0 */
/* stop.h: brings all rows to SSD when the server stops, with progress in the log and for the
 * service manager. Tries again while a disk refuses rows. Thread: the one that stops the server;
 * all lanes run, and no session is left. */
#ifndef EMBTIER_DAEMON_STOP_H
#define EMBTIER_DAEMON_STOP_H

#include "base/err.h"

struct server_parts;

/* Writes dirty rows back and flushes the write buffers of all shards. A signal on @signal_fd
 * (signals_open()) ends that if stop_patience.h allows it. An error says that rows are lost. */
MUST_CHECK enum embtier_err stop_write_back(const struct server_parts *parts, int signal_fd,
                                            struct err_msg *msg);

#endif
