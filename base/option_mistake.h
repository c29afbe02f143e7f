/* SPDX-License-Identifier: Apache-2.0 */
/* option_mistake.h: what getopt_long() found wrong, in its words.
 *
 * Its own messages show an argument as it is: as long as that is, and with what moves the cursor.
 * So programs set opterr to 0, begin their letters with ':' (behind '+'), and ask here. */
#ifndef EMBTIER_BASE_OPTION_MISTAKE_H
#define EMBTIER_BASE_OPTION_MISTAKE_H

#include <getopt.h>

#include "base/err.h"

/* After getopt_long() has returned @returned, which is '?' or ':'. */
void option_mistake(int returned, char *const *argv, const struct option *options,
                    struct err_msg *ret_msg);

#endif
