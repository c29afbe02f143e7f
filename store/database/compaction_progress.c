/* SPDX-License-Identifier: Apache-2.0 */
/* compaction_progress.c: how far the compactions of each database are. */
#include <string.h>

#include "base/macros.h"
#include "store/database/compaction_scheduler_impl.h"

static struct entry *entry_at(struct compaction_scheduler *scheduler, const char *path)
{
    for (uint32_t i = 0; i < scheduler->count; i++)
        if (strcmp(database_path(scheduler->entries[i].database), path) == 0)
            return &scheduler->entries[i];
    return NULL;
}

/* Time left at the speed so far. */
static uint64_t remaining_ms(const struct rocksdb_ext_compaction *compaction, uint64_t done_bytes)
{
    return (uint64_t)((double)compaction->elapsed_ms *
                      (double)(compaction->input_bytes - done_bytes) / (double)done_bytes);
}

static void add(void *context, const struct rocksdb_ext_compaction *compaction)
{
    struct entry *const entry = entry_at(context, compaction->path);
    /* Indexes are read too, so more may be read than the rows that files hold. */
    const uint64_t done_bytes = MIN(compaction->read_bytes, compaction->input_bytes);
    struct compaction_view *progress;

    if (!entry)
        return;
    progress = &entry->progress;
    progress->done_bytes += done_bytes;
    progress->total_bytes += compaction->input_bytes;
    progress->elapsed_ms = MAX(progress->elapsed_ms, compaction->elapsed_ms);
    if (done_bytes == 0)
        return;
    progress->has_remaining = true;
    progress->remaining_ms = MAX(progress->remaining_ms, remaining_ms(compaction, done_bytes));
}

void compaction_look_at_progress(struct compaction_scheduler *scheduler)
{
    bool runs = false;

    for (uint32_t i = 0; i < scheduler->count; i++) {
        struct entry *const entry = &scheduler->entries[i];

        entry->progress = (struct compaction_view){ .compacted_bytes =
                                                        database_compacted_bytes(entry->database) };
        runs = runs || entry->debt.running > 0;
    }
    if (runs && scheduler->options)
        rocksdb_ext_each_compaction(scheduler->options, add, scheduler);
}
