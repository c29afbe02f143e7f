/* SPDX-License-Identifier: Apache-2.0 */
#include "base/spec/home_rules.h"

#include "base/embtier_types.h"
#include "base/macros.h"

struct home_rules {
    bool needs_rows;
    bool has_tier;
    bool has_hot_rows;
};

static const struct home_rules rules[] = {
    [EMBTIER_HOME_CACHE] = { .needs_rows = false },
    [EMBTIER_HOME_ARRAY] = { .needs_rows = true, .has_tier = true },
    [EMBTIER_HOME_SPLIT] = { .has_tier = true, .has_hot_rows = true },
};

#define X(name, number, word, text) +1
_Static_assert(ARRAY_LEN(rules) == 0 EMBTIER_HOME_TABLE(X), "each home has its rules");
#undef X

static struct home_rules rules_of(int home)
{
    return home >= 0 && (size_t)home < ARRAY_LEN(rules) ? rules[home] : (struct home_rules){ 0 };
}

bool home_needs_rows(int home)
{
    return rules_of(home).needs_rows;
}

bool home_has_tier(int home)
{
    return rules_of(home).has_tier;
}

bool home_has_hot_rows(int home)
{
    return rules_of(home).has_hot_rows;
}
