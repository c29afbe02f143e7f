/* SPDX-License-Identifier: Apache-2.0 */
/* user_number.h: names a Unix user in messages and lines of the log. A client that comes over a
 * network has no such user: its number is -1, which as a number would tell nothing. Thread: any. */
#ifndef EMBTIER_BASE_TEXT_USER_NUMBER_H
#define EMBTIER_BASE_TEXT_USER_NUMBER_H

#include <sys/types.h>

/* "user 1000", or "a user over a network", in a buffer that lives as long as the caller's block:
 * USER_NUMBER(uid). */
struct user_number {
    char text[32];
};
const char *user_number_write(struct user_number *buffer, uid_t uid);
#define USER_NUMBER(uid) user_number_write(&(struct user_number){ { 0 } }, (uid))

#endif
