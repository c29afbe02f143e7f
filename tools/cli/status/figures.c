/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/status/figures.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

const struct embtier_metric *figures_find(const struct embtier_status *status, const char *name,
                                          const char *label_value)
{
    for (size_t i = 0; status && i < embtier_status_count(status); i++) {
        const struct embtier_metric *metric = embtier_status_at(status, i);

        if (strcmp(metric->name, name) == 0 && strcmp(metric->label_value, label_value) == 0)
            return metric;
    }
    return NULL;
}

static double sum(const struct embtier_status *status, const char *name)
{
    double total = 0;
    bool is_there = false;

    for (size_t i = 0; status && i < embtier_status_count(status); i++) {
        const struct embtier_metric *metric = embtier_status_at(status, i);

        if (strcmp(metric->name, name) != 0)
            continue;
        total += metric->value;
        is_there = true;
    }
    return is_there ? total : (double)NAN;
}

double figures_value(const struct embtier_status *status, const char *name, const char *label_value)
{
    const struct embtier_metric *metric;

    if (!label_value)
        return sum(status, name);
    metric = figures_find(status, name, label_value);
    return metric ? metric->value : (double)NAN;
}
