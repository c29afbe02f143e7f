/* SPDX-License-Identifier: Apache-2.0 */
/* address_list.h: the addresses of a server, as users write them in one text.
 *
 *     tcp://a:7411,tcp://[::1]:7411,unix:/run/embtier/embtier.sock
 *
 * Each comma ends an address, so no address of such a text has one: a socket whose path has a comma
 * needs a symbolic link without. Blanks belong to the addresses.
 *
 * Thread: any. */
#ifndef EMBTIER_BASE_NET_ADDRESS_LIST_H
#define EMBTIER_BASE_NET_ADDRESS_LIST_H

#include <stdint.h>

#include "base/err.h"
#include "base/macros.h"
#include "base/net/address.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ADDRESS_LIST_MAX 8

struct address_list {
    uint32_t count; /* 1 to ADDRESS_LIST_MAX */
    struct address addresses[ADDRESS_LIST_MAX];
    const char *texts[ADDRESS_LIST_MAX]; /* of each address, as it was written */
    char *copy;                          /* the texts lie in it */
};

/* INVALID: an entry is empty or no address, or there are too many; the message says which. */
MUST_CHECK enum embtier_err address_list_parse(const char *text, struct address_list **ret_list,
                                               struct err_msg *msg);
/* A list of one address, whose path may have commas. */
MUST_CHECK enum embtier_err address_list_of_path(const char *path, struct address_list **ret_list,
                                                 struct err_msg *msg);
/* NULL is fine. */
void address_list_free(struct address_list *list);
DEFINE_CLEANUP(struct address_list, address_list_free)

#ifdef __cplusplus
}
#endif
#endif
