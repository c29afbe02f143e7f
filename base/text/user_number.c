/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text/user_number.h"

#include <stdio.h>

const char *user_number_write(struct user_number *buffer, uid_t uid)
{
    if (uid == (uid_t)-1)
        return "a user over a network";
    (void)snprintf(buffer->text, sizeof(buffer->text), "user %u", (unsigned)uid);
    return buffer->text;
}
