/* SPDX-License-Identifier: Apache-2.0 */
/* config_descriptors.h: file descriptors as a budget. The process's limit (RLIMIT_NOFILE) is
 * divided among the store, its table files, exports, lanes and sessions, so that sessions never
 * take the descriptors that a checkpoint or a flush needs.
 *
 * The store's own, lanes, and the least that table files and one export can do with come first. By
 * default sessions get half of the rest, up to 1024; exports and table files have the
 * remainder. When a database has more table files than it may have open, RocksDB closes those that
 * were not used for longest. */
#ifndef EMBTIER_CONFIG_CONFIG_DESCRIPTORS_H
#define EMBTIER_CONFIG_CONFIG_DESCRIPTORS_H

#include "config/config.h"

#define CONFIG_DATABASES_PER_SHARD 2 /* of RocksDB */
/* Files that one compaction reads at most: all of level 0, and one of some others. */
#define CONFIG_COMPACTION_INPUTS 40

/* Each session's: its socket, three memfds and event descriptors, and its process. */
#define SESSION_DESCRIPTORS 5
/* The default of socket.max_sessions, and the lowest value that it is lowered to. */
#define SESSIONS_DEFAULT 1024
#define SESSIONS_LEAST   4
/* Exports that are under way at the same time, at most. */
#define CONFIG_SCANS_MAX 8

/* Decides on config->descriptors, and on socket.max_sessions if the file does not say, for
 * @lane_count lanes and the machine's limit. For inside base/ only. */
void config_descriptors_plan(struct config *config, uint32_t lane_count);

/* EMBTIER_CONFIG if a process with this limit has too few descriptors for the store, the lanes and
 * socket.max_sessions; the message names the numbers and the way out. */
MUST_CHECK enum embtier_err config_descriptors_check(const struct config *config, uint64_t limit,
                                                     struct err_msg *msg);

#endif
