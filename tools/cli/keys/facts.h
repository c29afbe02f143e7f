/* SPDX-License-Identifier: Apache-2.0 */
/* facts.h: all that `embtier keys` tells of a certificate, key or token, as JSON and for people.
 *
 * No fact holds a part of a private key or a token. */
#ifndef EMBTIER_TOOLS_CLI_KEYS_FACTS_H
#define EMBTIER_TOOLS_CLI_KEYS_FACTS_H

#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#include <openssl/x509.h>

#include "base/macros.h"
#include "base/tls/token.h"
#include "tools/cli/keys/pem_items.h"

struct json_t;

/* NULL: out of memory. */
struct json_t *certificate_facts(X509 *certificate, time_t now);
/* For an item that is no certificate: a key, or something else, which has its label only. */
struct json_t *pem_item_facts(const struct pem_item *item);
struct json_t *token_facts(const struct token_hash *hash);
/* Adds a warning. False: out of memory. */
MUST_CHECK bool facts_warn(struct json_t *facts, const char *format, ...) PRINTF_LIKE(2, 3);

/* Prints a line for each fact, indented. False: out of memory. */
MUST_CHECK bool facts_print(const struct json_t *facts, FILE *out);

#endif
