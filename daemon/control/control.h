/* SPDX-License-Identifier: Apache-2.0 */
/* control.h: the control thread: accepts clients, answers control messages, makes and ends
 * sessions.
 *
 * One epoll loop on the calling thread. It never waits for a client (connection.h) or for SSD: the
 * workers do long work. */
#ifndef EMBTIER_DAEMON_CONTROL_CONTROL_H
#define EMBTIER_DAEMON_CONTROL_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "config/config.h"
#include "daemon/transport/strangers.h"

struct access;
struct accounts;
struct arena;
struct checkpoints;
struct control;
struct message;
struct endurance;
struct groups;
struct knobs;
struct lane;
struct plan_record;
struct profiles;
struct reloads;
struct request_memory;
struct store;
struct tables;
struct ticket_memory;
struct transfer_memory;
struct transport;

/* The server's parts that the control thread and the metrics use; borrowed for its life. */
struct server_parts {
    const struct config *config;
    const struct transport *transport; /* of the clients that the socket accepts */
    struct store *store;
    struct tables *tables;
    struct access *access;
    struct accounts *accounts;
    struct request_memory *memory;
    struct ticket_memory *ticket_memory;
    struct groups *groups;
    struct transfer_memory *transfer_memory;
    struct checkpoints *checkpoints;
    struct plan_record *plan_record;
    struct profiles *profiles;
    struct reloads *reloads;
    struct endurance *endurance; /* NULL: devices are not sampled */
    struct knobs *knobs;
    struct arena *arenas[TIERS_MAX];
    struct table_arrays *arrays;
    struct lane **lanes;
    uint32_t lane_count;
    uint64_t started_ns;
    bool moves_buckets;         /* a job that moved them goes on (reshard_record.h) */
    struct strangers strangers; /* which transports count */
};

/* Listens on the configured socket. LOCKED: another server does. Replaces a socket file on which no
 * program listens. */
MUST_CHECK enum embtier_err control_new(const struct server_parts *parts,
                                        struct control **ret_control, struct err_msg *msg);
/* Serves until a signal asks for a stop (@signal_fd is that of signals_open()), then tells every
 * client and waits for requests under way. */
MUST_CHECK enum embtier_err control_run(struct control *control, int signal_fd,
                                        struct err_msg *msg);
/* Ends all jobs; the store may be closed after that. */
void control_end_jobs(struct control *control);
/* Sends mail to the control thread, for its kind (inbox.h). Any thread, until control_end_jobs().
 */
void control_send(void *control, struct message *message);
/* Call when no lane runs any more: one that has sent its last mail may still be about to
 * wake this thread. */
void control_free(struct control *control);
DEFINE_CLEANUP(struct control, control_free)

#endif
