/* SPDX-License-Identifier: Apache-2.0 */
/* embtier_status.h: the server's metrics, and users' shares of limited resources (embtier.h). */
#ifndef EMBTIER_STATUS_H
#define EMBTIER_STATUS_H

#include <stddef.h>
#include <stdint.h>

#include "embtier_common.h"

#ifdef __cplusplus
extern "C" {
#endif

struct embtier_metric {
    const char *name;
    const char *help;
    int counter;       /* else a gauge */
    const char *label; /* "" : none */
    const char *label_value;
    double value;
};
struct embtier_status;
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_status(struct embtier *server, struct embtier_status **ret_status);
EMBTIER_PUBLIC const char *embtier_status_version(const struct embtier_status *status);
EMBTIER_PUBLIC uint64_t embtier_status_uptime_ms(const struct embtier_status *status);
/* The libraries that the server was built with: "rocksdb 7.8.3", and the source of its tiers'
 * memory, which is "memkind", "mmap" (with libhwloc) or "malloc". An older server reports none: the
 * count is 0. */
EMBTIER_PUBLIC size_t embtier_status_library_count(const struct embtier_status *status);
EMBTIER_PUBLIC const char *embtier_status_library_at(const struct embtier_status *status,
                                                     size_t index);
EMBTIER_PUBLIC size_t embtier_status_count(const struct embtier_status *status);
EMBTIER_PUBLIC const struct embtier_metric *embtier_status_at(const struct embtier_status *status,
                                                              size_t index);
/* How long requests of one operation over one transport took since the server's start, from a
 * lane's first look at a request to its answer. They are counted by ranges, of which all but the
 * last end at @bounds. An older server reports none. Strings and arrays are borrowed from
 * @status. */
struct embtier_latency {
    const char *op;        /* "get" */
    const char *transport; /* "shm" */
    uint64_t requests;
    double seconds; /* of all together */
    size_t bound_count;
    const double *bounds;   /* seconds */
    const uint64_t *counts; /* bound_count + 1 */
};
EMBTIER_PUBLIC size_t embtier_status_latency_count(const struct embtier_status *status);
EMBTIER_PUBLIC const struct embtier_latency *
embtier_status_latency_at(const struct embtier_status *status, size_t index);
EMBTIER_PUBLIC void embtier_status_free(struct embtier_status *status);

/* One user's share of one limited resource, such as shared memory. */
struct embtier_account {
    uint32_t uid;     /* UINT32_MAX: unknown, such as that of a client over a network */
    const char *name; /* "arena_bytes" */
    const char *what; /* "shared memory" */
    int is_bytes;     /* zero: a number of things */
    uint64_t used;
    uint64_t most;    /* the user's limit now, which depends on the use of others */
    const char *user; /* of the server's access file; "": the Unix user @uid */
};
struct embtier_account_list;
/* Lists users with connections, tables or checkpoints, ordered by uid. A user's resources are
 * listed together. Strings are borrowed from the list. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_account_list(struct embtier *server, struct embtier_account_list **ret_list);
EMBTIER_PUBLIC size_t embtier_account_list_count(const struct embtier_account_list *list);
EMBTIER_PUBLIC const struct embtier_account *
embtier_account_list_at(const struct embtier_account_list *list, size_t index);
EMBTIER_PUBLIC void embtier_account_list_free(struct embtier_account_list *list);

#ifdef __cplusplus
}
#endif
#endif
