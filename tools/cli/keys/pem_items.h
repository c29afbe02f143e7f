/* SPDX-License-Identifier: Apache-2.0 */
/* pem_items.h: the certificates and keys of a PEM file, in the file's order.
 *
 * Keys with a password are told apart, and not asked for. */
#ifndef EMBTIER_TOOLS_CLI_KEYS_PEM_ITEMS_H
#define EMBTIER_TOOLS_CLI_KEYS_PEM_ITEMS_H

#include <stdbool.h>
#include <stddef.h>

#include <openssl/evp.h>
#include <openssl/x509.h>

#include "base/err.h"
#include "base/macros.h"

#define PEM_FILE_BYTES_MAX (1 << 20) /* thousands of certificates */

struct pem_item {
    X509 *certificate; /* or NULL */
    EVP_PKEY *key;     /* a private key, or NULL */
    char label[64];    /* such as "CERTIFICATE" */
};

struct pem_items {
    struct pem_item *all;
    size_t count;
};

/* Takes a text apart. INVALID: an item is damaged, or there is none. @path is for messages. */
MUST_CHECK enum embtier_err pem_items_parse(const char *path, const char *text, size_t bytes,
                                            struct pem_items *ret_items, struct err_msg *msg);
/* Reads a file. NOT_FOUND and others of secret_file_read(), or those of pem_items_parse(). */
MUST_CHECK enum embtier_err pem_items_read(const char *path, struct pem_items *ret_items,
                                           struct err_msg *msg);
/* For _cleanup_. */
void pem_items_clear(struct pem_items *items);

/* True if the key of @item needs a password. */
bool pem_item_is_locked(const struct pem_item *item);
/* Return the first of the items that is one, or NULL. Borrowed. */
X509 *pem_items_certificate(const struct pem_items *items);
EVP_PKEY *pem_items_key(const struct pem_items *items);

#endif
