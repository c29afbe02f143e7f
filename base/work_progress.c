/* SPDX-License-Identifier: Apache-2.0 */
#include "base/work_progress.h"

#include <math.h>

#include "base/macros.h"

void work_progress_add(struct work_progress *sum, const struct work_progress *part)
{
    if (part->total_bytes == 0)
        return;
    sum->has_remaining = part->has_remaining && (sum->has_remaining || sum->total_bytes == 0);
    sum->remaining_ms = sum->has_remaining ? MAX(sum->remaining_ms, part->remaining_ms) : 0;
    sum->done_bytes += part->done_bytes;
    sum->total_bytes += part->total_bytes;
}

double work_progress_remaining_s(const struct work_progress *progress)
{
    return progress->has_remaining ? (double)progress->remaining_ms / 1000 : (double)NAN;
}

double work_progress_share(const struct work_progress *progress)
{
    return progress->total_bytes > 0 ? (double)progress->done_bytes / (double)progress->total_bytes
                                     : (double)NAN;
}
