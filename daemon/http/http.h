/* SPDX-License-Identifier: Apache-2.0 */
/* http.h: metrics, health and state of the server over HTTP, by libmicrohttpd. All is read-only.
 *
 * One thread of its own listens from the start of the daemon to its end, so that it can tell that
 * the server starts or stops. While the server serves, the thread asks the control thread for a
 * snapshot of all figures (daemon/control/snapshot.h), and waits for it, for a few seconds at most.
 * It reads the tables itself, a page of them at a time. So no lane and no client waits for a
 * reader, however many there are and however slow, and the control thread collects one snapshot at
 * a time. */
#ifndef EMBTIER_DAEMON_HTTP_HTTP_H
#define EMBTIER_DAEMON_HTTP_HTTP_H

#include <stdbool.h>

#include "base/err.h"
#include "base/macros.h"

struct config;
struct control;
struct http;
struct tables;

/* Checks that http_new() would succeed, and leaves nothing behind. @may_live: the server runs, and
 * has the address. CONFIG: the address cannot be had, other hosts reach it and may not, or this
 * build has no HTTP. */
MUST_CHECK enum embtier_err http_check(const struct config *config, bool may_live,
                                       struct err_msg *msg);
/* Listens at http.listen, and answers that the server starts. *@ret_http is NULL if the
 * configuration has no address. */
MUST_CHECK enum embtier_err http_new(const struct config *config, struct http **ret_http,
                                     struct err_msg *msg);
/* The server serves. The parts are borrowed until http_stopping(). @http may be NULL, as below. */
void http_serving(struct http *http, struct control *control, struct tables *tables);
/* The server stops: the parts are not used any more. To be called before control_end_jobs(). */
void http_stopping(struct http *http);
/* To be called after control_end_jobs(), which gives back what the control thread still had. */
void http_free(struct http *http);
DEFINE_CLEANUP(struct http, http_free)

#endif
