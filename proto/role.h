/* SPDX-License-Identifier: Apache-2.0 */
/* role.h: what a user may do, in three steps. A role may do all that the roles before it may.
 * Thread: any. */
#ifndef EMBTIER_PROTO_ROLE_H
#define EMBTIER_PROTO_ROLE_H

#include <stdbool.h>

#include "base/macros.h"

/* X(name, word). The numbers go over the wire in refusals of requests, so they are never changed.
 */
#define ROLE_TABLE(X)                                                                              \
    X(NONE, "none") /* of a user that the file has no more */                                      \
    X(READ, "read")                                                                                \
    X(TRAIN, "train")                                                                              \
    X(ADMIN, "admin")

enum role {
#define X(name, word) ROLE_##name,
    ROLE_TABLE(X)
#undef X
        ROLE_COUNT
};

const char *role_word(enum role role);
/* False: @word is not a role that a user can have. */
MUST_CHECK bool role_parse(const char *word, enum role *ret_role);

#endif
