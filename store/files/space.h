/* SPDX-License-Identifier: Apache-2.0 */
/* space.h: how much of the disks rows may take, so that a disk which rows have filled can be freed.
 *
 * Each data directory has a file `reserve` whose blocks are taken from the file system beforehand.
 * Ordinary updates are refused before they need these blocks: what is free must have room for all
 * that is in memory and will be written, which is what has been acknowledged. Work that frees
 * space, or without which nothing goes on, uses the reserve: drops, checkpoints, deletions, a stop,
 * a start. While some of it is under way on a disk that is nearly full, the file is empty, but for
 * a part that a start alone may use, which opens all databases; after that it is filled again, as
 * soon as there is space.
 *
 * A thread of its own looks at the file systems twenty times a second, and adds up what is free,
 * and what will be written: rows that have changed in the cache (reported from outside), and write
 * buffers. While that leaves more than @plenty_bytes, updates are not counted at all; else each
 * takes its bytes from what is left until the thread looks again. Thread: any. */
#ifndef EMBTIER_STORE_FILES_SPACE_H
#define EMBTIER_STORE_FILES_SPACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct space;

#define SPACE_RESERVE_FILE "reserve" /* in each data directory */

struct space_opts {
    const char *const *directories; /* copied */
    uint32_t directory_count;
    uint32_t database_count; /* all directories together */
    uint64_t reserve_bytes;  /* of each; 0: what flushing the write buffers may take, and some more,
                                but no more than a sixteenth of the file system; and what opening
                                databases takes */
    uint64_t memtable_bytes; /* all directories together */
    uint64_t plenty_bytes;   /* what may change in memory before the thread looks again */
};

/* The reserve is in use at first: by the start. Gives up the blocks of one whose disk is nearly
 * full. */
MUST_CHECK enum embtier_err space_new(const struct space_opts *opts, struct space **ret_space,
                                      struct err_msg *msg);
/* Starts the thread; @buffer_bytes says what write buffers hold, until space_free(). */
MUST_CHECK enum embtier_err space_start(struct space *space,
                                        uint64_t (*buffer_bytes)(const void *context),
                                        const void *context, struct err_msg *msg);
void space_free(struct space *space);
DEFINE_CLEANUP(struct space, space_free)

/* Work that may use the reserve begins. True: a disk is nearly full, or may become so while it is
 * under way, by what compactions write and take back. */
bool space_begin_use(struct space *space);
/* Gives the reserves of disks that are nearly full up, now and as long as work is under way. True:
 * one has been. */
bool space_use(struct space *space);
/* True: no other work is under way. */
bool space_end_use(struct space *space);

/* Rows that have changed in memory and are not in a write buffer. Once at least for each look. */
void space_report(struct space *space, uint64_t unwritten_bytes);
/* NO_SPACE: rows of so many bytes cannot be changed now. Never waits. */
enum embtier_err space_admit(struct space *space, uint64_t bytes);
/* Looks now. NO_SPACE, with the figures: there is no room for @bytes more of rows. */
MUST_CHECK enum embtier_err space_check(struct space *space, uint64_t bytes, const char *what,
                                        struct err_msg *msg);

struct space_stats {
    uint64_t reserve_bytes; /* of all directories, as it should be … */
    uint64_t held_bytes;    /* … and is */
    uint64_t free_bytes;    /* for rows, until updates are refused */
    uint64_t refusals;      /* updates that were */
};
void space_stats(struct space *space, struct space_stats *ret_stats);

#endif
