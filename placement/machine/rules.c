/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/machine/rules.h"

#include <stdlib.h>

enum embtier_err rules_new(struct rules **ret_rules)
{
    struct rules *const rules = calloc(1, sizeof(*rules));

    if (!rules)
        return EMBTIER_NO_MEMORY;
    rules->moved_bytes_max = UINT64_MAX;
    rules->least_gain = RULES_LEAST_GAIN;
    *ret_rules = rules;
    return EMBTIER_OK;
}

void rules_free(struct rules *rules)
{
    if (!rules)
        return;
    free(rules->rules);
    free(rules->names);
    free(rules->unsplit);
    free(rules);
}

const char *rules_limit_word(enum rules_limit limit)
{
    static const char *const words[] = {
#define X(name, word, text, unit) [LIMIT_##name] = word,
        RULES_LIMIT_TABLE(X)
#undef X
    };

    return words[limit];
}
