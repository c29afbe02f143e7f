/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/role.h"

#include <string.h>

static const char *const words[] = {
#define X(name, word) word,
    ROLE_TABLE(X)
#undef X
};

const char *role_word(enum role role)
{
    return role < ROLE_COUNT ? words[role] : "unknown";
}

bool role_parse(const char *word, enum role *ret_role)
{
    for (enum role role = ROLE_READ; role < ROLE_COUNT; role++) {
        if (strcmp(words[role], word) != 0)
            continue;
        *ret_role = role;
        return true;
    }
    return false;
}
