/* SPDX-License-Identifier: Apache-2.0 */
/* http_impl.h: private state of HTTP. These share it: http.c (life, states), http_loop.c (the
 * thread and its connections), http_pages.c (requests and answers). */
#ifndef EMBTIER_DAEMON_HTTP_HTTP_IMPL_H
#define EMBTIER_DAEMON_HTTP_HTTP_IMPL_H

#include <microhttpd.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/control/snapshot.h"
#include "daemon/http/history.h"
#include "daemon/http/http.h"
#include "daemon/transport/listen/listener.h"

struct table_top;

enum http_state {
    HTTP_STARTING,
    HTTP_SERVING,
    HTTP_STOPPING,
};

/* A connection. http thread */
struct http_peer {
    int fd;            /* -1: this place is free */
    uint64_t since_ns; /* it was accepted, or its last request ended */
};

struct http {
    const struct config *config;
    struct listener listener;
    struct MHD_Daemon *daemon;
    pthread_t thread;
    bool has_thread;
    int wake_fd; /* an event: the thread ends */
    _Atomic bool is_ending;
    struct http_peer *peers; /* max_connections */
    struct table_top *top;   /* http thread; NULL: there are no metrics of tables */
    struct history history;  /* http thread */
    uint64_t history_ns;     /* when its newest point was added */
    _Atomic bool is_asked;   /* the control thread has the snapshot … */
    uint64_t asked_ns;       /* … since then; http thread */
    bool is_filled;          /* the snapshot, when it has come back */
    _Atomic bool is_stopping;
    sem_t changed;        /* posted when it has, and when the server stops */
    pthread_mutex_t lock; /* of the next three. The control thread takes it only at a stop */
    enum http_state state;
    struct control *control; /* borrowed while it serves, as are the tables */
    struct tables *tables;
    struct snapshot snapshot;
};

/* ---- http.c ---- */

enum http_asked {
    HTTP_ANSWERED,
    HTTP_IS_STARTING,
    HTTP_IS_STOPPING,
    HTTP_UNANSWERED, /* the control thread has not answered in time */
    HTTP_NO_MEMORY,  /* for the figures of tables */
};
/* HTTP thread. Has the snapshot filled, and if @with_tables also reads the tables. The snapshot
 * stays as it is until the next call. */
enum http_asked http_ask(struct http *http, bool with_tables);

/* ---- http_loop.c ---- */

MUST_CHECK enum embtier_err http_loop_start(struct http *http, struct err_msg *msg);
/* Closes all connections. */
void http_loop_end(struct http *http);

/* ---- http_pages.c ---- */

/* Handles a request, as libmicrohttpd calls it. */
enum MHD_Result http_answer(void *context, struct MHD_Connection *connection, const char *url,
                            const char *method, const char *version, const char *upload,
                            size_t *upload_bytes, void **request);

#endif
