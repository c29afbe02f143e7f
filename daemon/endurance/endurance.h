/* SPDX-License-Identifier: Apache-2.0 */
/* endurance.h: bytes that go to the devices beneath the data directories and the tiers' files: by
 * the server, and by all. Their histories, and a warning if they are too many.
 *
 * The kernel counts what each device has been told to write (/sys/class/block/NAME/stat). The
 * server counts what it writes to each data directory (store/files/written.h). The system writes a
 * tier's file back by itself, so its bytes are those that the kernel counts for this process beside
 * the server's own (write_bytes of /proc/self/io).
 *
 * Data directories that are added while the server runs count from the next sample on. The device
 * of one that is removed is no longer shown, nor held, unless something else is on it.
 *
 * endurance.max_dwpd: a device that takes more drive writes a day is warned of. When the bytes of
 * the last day are above those of the limit, write-back to it is held (write_hold.h). Both end when
 * the figure is below four fifths of the limit, or not above another limit.
 *
 * A thread samples every second, tables every ten seconds, and saves the histories every five
 * minutes and at the end. No other thread reads a file: figures are those of the last sample.
 * Thread: any for get, save and max_dwpd. Others are for the thread that makes it, before the start
 * and after the end. */
#ifndef EMBTIER_DAEMON_ENDURANCE_ENDURANCE_H
#define EMBTIER_DAEMON_ENDURANCE_ENDURANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/host/host.h"
#include "daemon/endurance/table_histories.h"
#include "daemon/endurance/write_history.h"

struct config;
struct endurance;

#define ENDURANCE_DEVICES_MAX 64

struct endurance_opts {
    const struct config *config; /* borrowed */
    const struct host *host;     /* borrowed */
    const char *directory;       /* for the file of histories; borrowed */
    /* Holds write-back to a data directory to @bytes of rows until the next call, or lets it go on.
     * It does not wait. NULL: nothing is held. */
    void (*hold)(void *context, const char *directory, bool is_held, uint64_t bytes);
    void *context;
    /* Fills in up to @most tables with numbers above @after, by ascending number, and the bytes
     * that the store wrote for all causes. False: out of memory. NULL: tables are not sampled. */
    bool (*list_tables)(void *context, uint32_t after, uint32_t most,
                        struct table_bytes *ret_tables, uint32_t *ret_count);
    uint64_t (*store_bytes)(void *context);
    void *tables_context;
};

struct written_figures {
    uint64_t total_bytes; /* since the history began */
    uint64_t age_ms;      /* of the history */
    bool has_rates;       /* the history is old enough for them */
    struct write_rate rates[WRITE_WINDOWS];
};

struct endurance_device {
    struct host_line name;   /* "nvme0n1" */
    uint64_t capacity_bytes; /* 0: not known */
    bool is_counted;         /* by the kernel; else nothing below is known */
    uint64_t written_bytes;  /* by all, since the server's start or the kernel counts */
    /* The server's part of them is known: no directory or tier on the device lies on several. */
    bool has_server_bytes;
    uint64_t server_bytes;
    struct written_figures history; /* of the bytes of all */
    bool is_over;                   /* more a day than endurance.max_dwpd */
    bool is_held;                   /* so write-back is held */
};

struct endurance_state {
    bool has_tier_files; /* a tier's file lies on a device, and its bytes are known */
    uint64_t tier_file_bytes;
    struct written_figures server; /* on all devices */
    struct written_figures shared; /* of them those that belong to no table */
    uint32_t device_count;
    struct endurance_device devices[ENDURANCE_DEVICES_MAX];
};

/* Finds the devices, and reads the histories. */
MUST_CHECK enum embtier_err endurance_new(const struct endurance_opts *opts, uint64_t now_ms,
                                          struct endurance **ret_endurance, struct err_msg *msg);
MUST_CHECK enum embtier_err endurance_start(struct endurance *endurance, struct err_msg *msg);
/* One turn of the thread: reads the counters, warns if a device begins to be over the limit, and
 * saves when it is time. */
void endurance_turn(struct endurance *endurance, uint64_t now_ms);
MUST_CHECK enum embtier_err endurance_save(struct endurance *endurance, struct err_msg *msg);
/* The figures as they were sampled last. */
void endurance_get(struct endurance *endurance, uint64_t now_ms, struct endurance_state *ret_state);
/* Bytes written for a table. False: nothing is known of it. */
MUST_CHECK bool endurance_get_table(struct endurance *endurance, uint32_t table_id, uint64_t now_ms,
                                    struct written_figures *ret_figures);
/* endurance.max_dwpd; 0: no limit. It counts from the next sample on. */
void endurance_set_max_dwpd(struct endurance *endurance, double max_dwpd);
double endurance_max_dwpd(struct endurance *endurance);
/* Lets write-back go on for good, as a stop writes all rows. NULL is allowed. */
void endurance_release(struct endurance *endurance);
/* Ends the thread, samples and saves. The directory's lock is still held, and all files of the
 * store are written. */
void endurance_end(struct endurance *endurance);
/* Does not save. */
void endurance_free(struct endurance *endurance);
DEFINE_CLEANUP(struct endurance, endurance_free)

#endif
