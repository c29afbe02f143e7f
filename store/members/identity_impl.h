/* SPDX-License-Identifier: Apache-2.0 */
/* identity_impl.h: the parts of store_identity.c that adding and removing directories needs, too.
 */
#ifndef EMBTIER_STORE_MEMBERS_IDENTITY_IMPL_H
#define EMBTIER_STORE_MEMBERS_IDENTITY_IMPL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/row_hash.h"
#include "store/members/members.h"

#define IDENTITY_FILE "embtier.json"
#define LOCK_FILE     "LOCK"

enum state { STATE_ABSENT, STATE_MAKING, STATE_READY };

/* The contents of embtier.json. */
struct record {
    enum state state;
    uint32_t directory_index;
    uint32_t directory_count; /* numbers given out when it was written */
    uint32_t shards_per_directory;
    char uuid[MEMBERS_UUID_CHARS + 1];
    unsigned char hash_key[ROW_HASH_KEY_BYTES];
};

struct directory {
    char *path; /* NULL: it has left before the store was opened */
    int lock_fd;
    struct record record;
    _Atomic bool has_left; /* while the store is open; databases in it stay open */
    _Atomic bool leaves;   /* it gets no new shards */
};

struct store_identity {
    /* Numbers given out. Rises when a directory joins, once its entry is complete. */
    _Atomic uint32_t directory_count;
    /* CONFIG_DIRECTORIES_MAX; as in the config, then by directory_index. */
    struct directory *directories;
    struct members members;   /* generation 0: as embtier.json says; thread: that moves buckets */
    struct directory joining; /* its path is NULL: none */
    bool joining_was_made;    /* with the directory itself */
    uint32_t left_out;        /* missing, as --without-directory says; MEMBERS_NONE: none is */
    bool is_unknown;          /* the next start may find another list than @members */
    bool is_other;            /* another server's; a copy has those that its checkpoint needs */
};

/* Returns state ABSENT if there is no such file. */
MUST_CHECK enum embtier_err identity_record_read(const char *path, struct record *ret_record,
                                                 struct err_msg *msg);
MUST_CHECK enum embtier_err identity_record_write(const char *path, const struct record *record,
                                                  struct err_msg *msg);
/* Refuses a directory with any entry that a new store would not find there. A mistyped path must
 * not strew our files among others. */
MUST_CHECK enum embtier_err identity_directory_check_empty(const char *path, struct err_msg *msg);
/* @is_other: the lock is shared, and nothing is written. A copied directory may have no such file;
 * then no server has it open. */
MUST_CHECK enum embtier_err identity_directory_lock(struct directory *directory, bool is_other,
                                                    struct err_msg *msg);
bool identity_is_same_directory(const char *path, const char *other);

#endif
