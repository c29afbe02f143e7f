/* SPDX-License-Identifier: Apache-2.0 */
/* members.h: which data directories belong to a store, once one was added or removed.
 *
 * Each of them has a copy of the list, directories.json. A store whose directories never changed
 * has none: its embtier.json files say how many there are. A change is written to all directories.
 * A crash in between may leave both lists, and the newest counts; the directory that they differ in
 * has no rows then, so both are right. Numbers are never given out again. Thread: one. */
#ifndef EMBTIER_STORE_MEMBERS_MEMBERS_H
#define EMBTIER_STORE_MEMBERS_MEMBERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "config/config.h"

#define MEMBERS_FILE       "directories.json"
#define MEMBERS_UUID_CHARS 32
#define MEMBERS_NONE       UINT32_MAX

struct members {
    uint64_t generation; /* 0: there is no list */
    char uuid[MEMBERS_UUID_CHARS + 1];
    uint32_t given;                      /* numbers given out */
    char *paths[CONFIG_DIRECTORIES_MAX]; /* of each number, when the list was written */
    char *names[CONFIG_DIRECTORIES_MAX]; /* the same as configured, maybe through links; or NULL */
    bool has_left[CONFIG_DIRECTORIES_MAX];
};

void members_clear(struct members *members);
static inline bool members_have(const struct members *members, uint32_t number)
{
    return number < members->given && !members->has_left[number];
}
uint32_t members_count(const struct members *members);
/* True if the list has the directory at @path, as it was configured or without links. */
bool members_are_at(const struct members *members, uint32_t number, const char *path);
/* Returns the number of the directory that the list has at @path, one that is still the store's
 * before one that has left; MEMBERS_NONE: it has none. */
uint32_t members_number_at(const struct members *members, const char *path);
/* *@ret_copy is set on OK only. */
MUST_CHECK enum embtier_err members_copy(const struct members *members, struct members *ret_copy,
                                         struct err_msg *msg);

/* Reads one copy. A missing one has generation 0. CORRUPT. */
MUST_CHECK enum embtier_err members_read(const char *directory, struct members *ret_members,
                                         struct err_msg *msg);
/* Reads the copies of all directories, and returns the newest. An error: one cannot be read, and
 * none is whole; or two of one generation differ (CORRUPT). */
MUST_CHECK enum embtier_err members_find(char *const *directories, uint32_t count,
                                         struct members *ret_members, struct err_msg *msg);
MUST_CHECK enum embtier_err members_write(const char *directory, const struct members *members,
                                          struct err_msg *msg);

#endif
