/* SPDX-License-Identifier: Apache-2.0 */
/* option_mistake.h: getopt_long() with messages in plain text that name the right option.
 *
 * getopt's own messages show an argument unchanged: at full length, and with characters that move
 * the cursor. So @letters must begin with ':' (after a '+'), and this module words the messages. */
#ifndef EMBTIER_BASE_TEXT_OPTION_MISTAKE_H
#define EMBTIER_BASE_TEXT_OPTION_MISTAKE_H

#include <getopt.h>

#include "base/err.h"

/* Returns the next option as getopt_long() does. '?' or ':' is a mistake, which @ret_msg
 * describes. */
int option_next(int argc, char *const *argv, const char *letters, const struct option *options,
                struct err_msg *ret_msg);

#endif
