/* SPDX-License-Identifier: Apache-2.0 */
/* endurance.h: bytes that go to the devices beneath the data directories and the tiers' files: by
 * the server, and by all. Their histories, and a warning if they are too many.
 *
 * The kernel counts what each device has been told to write (/sys/class/block/NAME/stat). The
 * server counts what it writes to each data directory (store/files/written.h). The system writes a
 * tier's file back by itself, so its bytes are those that the kernel counts for this process beside
 * the server's own (write_bytes of /proc/self/io).
 *
 * A thread samples every ten seconds, and saves the histories every five minutes and at the end.
 * Thread: any, but new, end and free. */
#ifndef EMBTIER_DAEMON_ENDURANCE_ENDURANCE_H
#define EMBTIER_DAEMON_ENDURANCE_ENDURANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/host/host.h"
#include "daemon/endurance/write_history.h"

struct config;
struct endurance;

#define ENDURANCE_DEVICES_MAX 64

struct endurance_opts {
    const struct config *config; /* borrowed */
    const struct host *host;     /* borrowed */
    const char *directory;       /* for the file of histories; borrowed */
};

struct written_figures {
    uint64_t total_bytes; /* since the history began */
    uint64_t age_ms;      /* of the history */
    struct write_rate rates[WRITE_WINDOWS];
};

struct endurance_device {
    struct host_line name;   /* "nvme0n1" */
    uint64_t capacity_bytes; /* 0: not known */
    uint64_t written_bytes;  /* by all, since the server's start */
    /* The server's part of them is known: no directory or tier on the device lies on several. */
    bool has_server_bytes;
    uint64_t server_bytes;
    struct written_figures history; /* of the bytes of all */
    bool is_over;                   /* more a day than endurance.max_dwpd */
};

struct endurance_state {
    bool has_tier_files; /* a tier's file lies on a device, and its bytes are known */
    uint64_t tier_file_bytes;
    struct written_figures server; /* on all devices */
    uint32_t device_count;
    struct endurance_device devices[ENDURANCE_DEVICES_MAX];
};

/* Finds the devices, and reads the histories. */
MUST_CHECK enum embtier_err endurance_new(const struct endurance_opts *opts, uint64_t now_ms,
                                          struct endurance **ret_endurance, struct err_msg *msg);
MUST_CHECK enum embtier_err endurance_start(struct endurance *endurance, struct err_msg *msg);
/* Reads the counters, and warns if a device begins to be over the limit. */
void endurance_sample(struct endurance *endurance, uint64_t now_ms);
MUST_CHECK enum embtier_err endurance_save(struct endurance *endurance, struct err_msg *msg);
/* The figures as they were sampled last. */
void endurance_get(struct endurance *endurance, uint64_t now_ms, struct endurance_state *ret_state);
/* Ends the thread, samples and saves. The directory's lock is still held. */
void endurance_end(struct endurance *endurance);
/* Does not save. */
void endurance_free(struct endurance *endurance);
DEFINE_CLEANUP(struct endurance, endurance_free)

#endif
