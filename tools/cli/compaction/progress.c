/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/compaction/progress.h"

#include "client/include/embtier.h"
#include "tools/cli/number.h"

struct work_progress compaction_progress_of(const struct embtier_compaction_database *database)
{
    return (struct work_progress){ database->done_bytes, database->total_bytes,
                                   database->has_remaining != 0, database->remaining_ms };
}

struct work_progress compaction_progress_sum(const struct embtier_compaction_list *list)
{
    struct work_progress sum = { 0 };

    for (size_t i = 0; i < embtier_compaction_list_count(list); i++) {
        const struct work_progress one =
            compaction_progress_of(embtier_compaction_list_at(list, i));

        work_progress_add(&sum, &one);
    }
    return sum;
}

void compaction_progress_print(const struct embtier_compaction_list *list, FILE *out)
{
    const struct work_progress progress = compaction_progress_sum(list);
    struct number_text done, total, left;

    if (progress.total_bytes == 0)
        return;
    fprintf(out, "compacting: %s of %s read (%.0f %%)",
            number_bytes(&done, (double)progress.done_bytes),
            number_bytes(&total, (double)progress.total_bytes),
            100 * work_progress_share(&progress));
    if (progress.has_remaining)
        fprintf(out, ", about %s left\n",
                number_duration(&left, work_progress_remaining_s(&progress)));
    else
        fputs(", time left not known yet\n", out);
}
