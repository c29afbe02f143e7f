/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/health/health.h"

#include "base/macros.h"

static const char *const words[] = {
#define X(name, word, text) word,
    HEALTH_TABLE(X)
#undef X
};

const char *health_word(enum health health)
{
    return words[health];
}

enum health health_check(const struct health_figures *figures, health_found_fn *found,
                         void *context)
{
    enum health worst = HEALTH_OK;

    for (size_t i = 0; i < health_rule_count; i++) {
        struct health_why why = { { 0 } };

        if (!health_rules[i].is_broken(figures, &why))
            continue;
        worst = MAX(worst, health_rules[i].health);
        found(context, &health_rules[i], why.text);
    }
    return worst;
}
