/* SPDX-License-Identifier: Apache-2.0 */
/* config_descriptors.h: file descriptors as a budget. The process's limit (RLIMIT_NOFILE) is
 * divided among the store, its table files, exports, lanes and sessions. So sessions never take the
 * descriptors that a checkpoint or a flush needs.
 *
 * The store itself, the lanes, and the minimum for table files and one export come first. By
 * default sessions get half of the rest, up to 1024; exports and table files get the remainder.
 * When a database reaches its limit of open table files, RocksDB closes the least recently used
 * ones. */
#ifndef EMBTIER_CONFIG_CONFIG_DESCRIPTORS_H
#define EMBTIER_CONFIG_CONFIG_DESCRIPTORS_H

#include "config/config.h"

#define CONFIG_DATABASES_PER_SHARD 2 /* RocksDB databases */
/* The most files that one compaction reads: all of level 0, and one of some other levels. */
#define CONFIG_COMPACTION_INPUTS 40

/* Each session of shared memory has a socket, three memfds and eventfds together, and a pidfd of
 * the client's process. One over RPC has a socket, the two of its pair, and an eventfd. */
#define SESSION_DESCRIPTORS 5
/* The default of socket.max_sessions, and the lowest value to which few descriptors reduce it. */
#define SESSIONS_DEFAULT 1024
#define SESSIONS_LEAST   4
/* The most exports in progress at the same time. */
#define CONFIG_SCANS_MAX 8

/* Places of connections over RPC that are no session: clients that have not said hello, and those
 * on their way out. All clients of a small server may come at the same moment. */
#define STRANGERS_LEAST 16
static inline uint32_t config_rpc_strangers(const struct config *config)
{
    return config->socket.max_sessions / 2 + STRANGERS_LEAST;
}

/* All connections over RPC. Strangers need twice their places while those that have ended are being
 * closed, and while a loop that has fewer than its share takes some. */
static inline uint32_t config_rpc_streams(const struct config *config)
{
    return config->socket.max_sessions + 2 * config_rpc_strangers(config);
}

/* Sets config->descriptors, and socket.max_sessions if the file does not, for @lane_count lanes and
 * the machine's limit. Only for use inside config/. */
void config_descriptors_plan(struct config *config, uint32_t lane_count);

/* EMBTIER_CONFIG if a process with this limit has too few descriptors for the store, the lanes and
 * socket.max_sessions. The message gives the numbers and the remedies. */
MUST_CHECK enum embtier_err config_descriptors_check(const struct config *config, uint64_t limit,
                                                     struct err_msg *msg);

#endif
