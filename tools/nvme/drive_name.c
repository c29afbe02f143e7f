/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nvme/drive_name.h"

#include <stddef.h>
#include <string.h>

static bool skip_number(const char **at)
{
    const size_t digits = strspn(*at, "0123456789");

    *at += digits;
    return digits > 0;
}

bool drive_name_is_good(const char *name, bool is_block)
{
    if (strncmp(name, "nvme", 4) != 0)
        return false;
    name += 4;
    if (!skip_number(&name))
        return false;
    if (is_block && (*name++ != 'n' || !skip_number(&name)))
        return false;
    return *name == '\0';
}
