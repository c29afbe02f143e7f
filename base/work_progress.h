/* SPDX-License-Identifier: Apache-2.0 */
/* work_progress.h: how far work on files is, such as compactions, and all of it that goes on side
 * by side. The command has it from a reply of the server, and /status.json from the server itself.
 * Thread: any. */
#ifndef EMBTIER_BASE_WORK_PROGRESS_H
#define EMBTIER_BASE_WORK_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct work_progress {
    uint64_t done_bytes, total_bytes; /* total 0: nothing runs, or how far it is is not known */
    bool has_remaining;               /* the next one is known; of a sum: of all its parts */
    uint64_t remaining_ms;            /* of a sum: of the part that takes longest */
};

/* Adds to @sum, which begins as {0}, work that goes on beside its parts. */
void work_progress_add(struct work_progress *sum, const struct work_progress *part);
/* Returns NAN if it is not known. */
double work_progress_remaining_s(const struct work_progress *progress);
/* Returns the part that is done, 0 to 1; NAN if it is not known. */
double work_progress_share(const struct work_progress *progress);

#endif
