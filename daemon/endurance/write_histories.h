/* SPDX-License-Identifier: Apache-2.0 */
/* write_histories.h: the histories of the server and of its devices, kept over restarts.
 *
 * The file is endurance.json in the store's first directory. It is there in full or not at all, and
 * has a checksum (history_file.h). Thread: the owner's. */
#ifndef EMBTIER_DAEMON_ENDURANCE_WRITE_HISTORIES_H
#define EMBTIER_DAEMON_ENDURANCE_WRITE_HISTORIES_H

#include "base/err.h"
#include "base/host/host.h"
#include "daemon/endurance/device_set.h"
#include "daemon/endurance/write_history.h"

#define WRITE_HISTORIES_FILE "endurance.json"
#define WRITE_HISTORIES_KEPT 80 /* from the file, at most; so there is room for those in use */
#define WRITE_HISTORIES_MAX  (WRITE_HISTORIES_KEPT + DEVICE_SET_MAX + 1)

struct named_history {
    struct host_line id; /* of the device; "server" is the server's own */
    uint64_t counter;    /* of the device, as it was read last; of that boot */
    bool is_over;        /* the device is above endurance.max_dwpd, */
    bool is_held;        /* and write-back to it is held */
    struct write_history history;
};

struct write_histories {
    struct host_line boot; /* in which the counters were read; "": not known */
    double max_dwpd;       /* the limit that devices were judged by; negative: not known */
    uint32_t count;
    struct named_history items[WRITE_HISTORIES_MAX];
};

/* Reads the file in @directory. Histories without a bucket of the last week are left out. Without a
 * file, or with a damaged one, there are none. False: the file could not be read, and may be good:
 * save nothing over it. */
MUST_CHECK bool write_histories_load(const char *directory, uint64_t now_ms,
                                     struct write_histories *ret_histories);
/* On failure the file stays as it was. */
MUST_CHECK enum embtier_err write_histories_save(const struct write_histories *histories,
                                                 const char *directory, struct err_msg *msg);
/* Returns the history of @id, which is begun if there is none. It is called for the server and the
 * devices of one set only. */
struct named_history *write_histories_get(struct write_histories *histories,
                                          const struct host_line *id, uint64_t now_ms,
                                          bool *ret_is_new);

#endif
