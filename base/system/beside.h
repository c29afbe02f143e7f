/* SPDX-License-Identifier: Apache-2.0 */
/* beside.h: finds a program that belongs to this one. Thread: any. */
#ifndef EMBTIER_BASE_SYSTEM_BESIDE_H
#define EMBTIER_BASE_SYSTEM_BESIDE_H

#include <limits.h>

/* Writes the path of the program @name beside this one, as in a build folder, or else @installed,
 * whether it is there or not. */
void beside_find(const char *name, const char *installed, char ret_path[PATH_MAX]);

#endif
