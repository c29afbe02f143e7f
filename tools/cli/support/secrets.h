/* SPDX-License-Identifier: Apache-2.0 */
/* secrets.h: finds secrets in a text by their form, and writes asterisks over them. They have no
 * business in logs; this is for the day on which one is there anyway. Thread: any. */
#ifndef EMBTIER_TOOLS_CLI_SUPPORT_SECRETS_H
#define EMBTIER_TOOLS_CLI_SUPPORT_SECRETS_H

#include <stddef.h>

/* Hides tokens and their hashes (base/tls/token.h), whole or cut short, and private keys in PEM,
 * even if their first or last line is missing. Lines stay lines. Returns the number of secrets. */
size_t secrets_hide(char *text, size_t bytes);

#endif
