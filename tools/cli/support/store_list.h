/* SPDX-License-Identifier: Apache-2.0 */
/* store_list.h: the list of data directories that a store keeps once one was added or removed
 * (store/members/), read without a server. Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_SUPPORT_STORE_LIST_H
#define EMBTIER_TOOLS_CLI_SUPPORT_STORE_LIST_H

#include <jansson.h>

/* Changes @directories, an array of paths from a configuration, into those of the list: adds what
 * lacks, and drops those that were removed. It stays as it is if none of them has a list. */
void store_list_follow(json_t *directories);

#endif
