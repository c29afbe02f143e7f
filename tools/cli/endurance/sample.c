/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/endurance/sample.h"

#include <math.h>
#include <time.h>

#include "tools/cli/cli.h"
#include "tools/cli/endurance/devices.h"
#include "tools/cli/progress_bar.h"

#define INTERVAL_MS 200 /* between two steps of the progress bar */

void endurance_sample_free(struct endurance_sample *sample)
{
    embtier_table_list_free(sample->tables);
    embtier_status_free(sample->status);
}

enum embtier_err endurance_sample_take(struct cli *cli, struct endurance_sample *ret_sample)
{
    struct endurance_sample sample = { 0 };
    /* The status comes last, so that no table has more than all tables together. */
    enum embtier_err err = embtier_table_list(cli->server, &sample.tables);

    if (err == EMBTIER_OK)
        err = embtier_status(cli->server, &sample.status);
    if (err != EMBTIER_OK)
        endurance_sample_free(&sample);
    else
        *ret_sample = sample;
    return err;
}

double endurance_figure(const struct embtier_status *status, const char *name, const char *label)
{
    const double value = status_figure(status, name, label);

    return isnan(value) ? 0 : value;
}

const struct embtier_table_info *endurance_sample_table(const struct endurance_sample *sample,
                                                        uint32_t table_id)
{
    const struct embtier_table_list *const tables = sample->tables;

    for (size_t i = 0; tables && i < embtier_table_list_count(tables); i++)
        if (embtier_table_list_at(tables, i)->table_id == table_id)
            return embtier_table_list_at(tables, i);
    return NULL;
}

static bool has_fallen(const struct embtier_table_info *then, const struct embtier_table_info *now)
{
    return now->lookup_rows < then->lookup_rows ||
           now->missed_lookup_rows < then->missed_lookup_rows ||
           now->updated_rows < then->updated_rows || now->flush_bytes < then->flush_bytes ||
           now->compaction_bytes < then->compaction_bytes || now->log_bytes < then->log_bytes ||
           now->import_bytes < then->import_bytes;
}

enum embtier_err endurance_sample_check(const struct endurance_sample *before,
                                        const struct endurance_sample *now, struct err_msg *msg)
{
    bool is_other =
        embtier_status_uptime_ms(now->status) <= embtier_status_uptime_ms(before->status);

    for (size_t i = 0; !is_other && i < embtier_table_list_count(now->tables); i++) {
        const struct embtier_table_info *const info = embtier_table_list_at(now->tables, i);
        const struct embtier_table_info *const then =
            endurance_sample_table(before, info->table_id);

        is_other = then && has_fallen(then, info);
    }
    return is_other
               ? err_set(msg, EMBTIER_AGAIN, "the server was restarted meanwhile: run this again")
               : EMBTIER_OK;
}

void endurance_wait(double seconds)
{
    const uint64_t steps = (uint64_t)ceil(seconds * 1000 / INTERVAL_MS);
    struct progress_bar bar;

    progress_bar_begin(&bar, "counting", "the server keeps counting");
    for (uint64_t step = 0; step < steps; step++) {
        const double left = MIN(seconds * 1000 - (double)step * INTERVAL_MS, (double)INTERVAL_MS);

        nanosleep(&(struct timespec){ .tv_nsec = (long)(left * 1e6) }, NULL);
        progress_bar_update(&bar, (uint64_t)((double)(step + 1) * INTERVAL_MS / 1000),
                            (uint64_t)ceil(seconds), "s");
    }
    progress_bar_end(&bar);
}
