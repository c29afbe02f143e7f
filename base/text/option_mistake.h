/* SPDX-License-Identifier: Apache-2.0 */
/* option_mistake.h: getopt_long() whose messages are plain text, and name the right option.
 *
 * Its own messages show an argument as it is: at its full length, and with characters that move the
 * cursor. So letters begin with ':' (behind '+'), and the words for a mistake are those of this
 * module. */
#ifndef EMBTIER_BASE_TEXT_OPTION_MISTAKE_H
#define EMBTIER_BASE_TEXT_OPTION_MISTAKE_H

#include <getopt.h>

#include "base/err.h"

/* The next option, as getopt_long() returns it. '?' or ':' is a mistake, which @ret_msg tells. */
int option_next(int argc, char *const *argv, const char *letters, const struct option *options,
                struct err_msg *ret_msg);

#endif
