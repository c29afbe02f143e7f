/* SPDX-License-Identifier: Apache-2.0 */
/* token_file.h: the token by which a server knows a user (base/tls/token.h), from a file of the
 * user's. Thread: any. */
#ifndef EMBTIER_CLIENT_LIB_SESSION_TOKEN_FILE_H
#define EMBTIER_CLIENT_LIB_SESSION_TOKEN_FILE_H

#include "base/err.h"
#include "base/macros.h"
#include "base/tls/token.h"

/* Reads the file, which holds a token and may end with a newline. PERMISSION: users other than its
 * owner may read or write it, or the owner is neither this user nor root. INVALID: it holds no
 * token. Else errno's error. The caller clears the token. */
MUST_CHECK enum embtier_err token_file_read(const char *path, struct token *ret_token,
                                            struct err_msg *msg);
/* Reads the file that @path names, or if that is "", the variable EMBTIER_TOKEN_FILE. If neither
 * names one, the token is "". */
MUST_CHECK enum embtier_err token_file_find(const char *path, struct token *ret_token,
                                            struct err_msg *msg);

#endif
