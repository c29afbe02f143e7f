/* SPDX-License-Identifier: Apache-2.0 */
/* shown.h: figures for columns on a screen. One that is not known (NAN) is "-". Thread: any. */
#ifndef EMBTIER_TOOLS_CLI_STATUS_SHOWN_H
#define EMBTIER_TOOLS_CLI_STATUS_SHOWN_H

#include "tools/cli/number.h"

/* Write "1.23M" for counts with many digits, "1.5 GiB", "97.5%" into the caller's buffer and return
 * it. */
const char *shown_count(struct number_text *buffer, double value);
const char *shown_bytes(struct number_text *buffer, double bytes);
const char *shown_share(struct number_text *buffer, double share); /* 0 to 1 */

/* The same in a buffer that lives as long as the caller's block. */
#define SHOWN_COUNT(value) shown_count(&(struct number_text){ { 0 } }, (value))
#define SHOWN_BYTES(value) shown_bytes(&(struct number_text){ { 0 } }, (value))
#define SHOWN_SHARE(value) shown_share(&(struct number_text){ { 0 } }, (value))

#endif
