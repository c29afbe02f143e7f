/* SPDX-License-Identifier: Apache-2.0 */
/* space.h: limits the space that rows may take, so that a disk filled by rows can be freed.
 *
 * Each data directory has a file `reserve` whose blocks are allocated beforehand. Ordinary updates
 * are refused before they need these blocks. Free space must have room for all that is in memory
 * and will be written, which is all that was acknowledged. The reserve is for work that frees
 * space, or without which nothing goes on: drops, checkpoints, deletions, a stop, a start. While
 * such work is under way on a nearly full disk, the file is empty except for a part. Only a start
 * may use that part, as it opens all databases. Afterwards the file is filled again as soon as
 * there is space.
 *
 * A thread looks at the file systems twenty times a second. It adds up the free space, and the
 * bytes to be written: changed rows in the cache (reported from outside), and write buffers. While
 * more than @plenty_bytes is left, updates are not counted at all. Otherwise each takes its bytes
 * from the rest until the thread looks again. Thread: any. */
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
    uint64_t reserve_bytes;  /* of each; 0: for flushing the write buffers and some more, at most a
                                sixteenth of the file system; plus for opening databases */
    uint64_t memtable_bytes; /* all directories together */
    uint64_t plenty_bytes;   /* bytes that may change in memory before the thread looks again */
};

/* Begins with the reserve in use, by the start. Gives up the blocks of a reserve whose disk is
 * nearly full. */
MUST_CHECK enum embtier_err space_new(const struct space_opts *opts, struct space **ret_space,
                                      struct err_msg *msg);
/* Starts the thread, which asks @buffer_bytes for the bytes in write buffers until space_free(). */
MUST_CHECK enum embtier_err space_start(struct space *space,
                                        uint64_t (*buffer_bytes)(const void *context),
                                        const void *context, struct err_msg *msg);
void space_free(struct space *space);
DEFINE_CLEANUP(struct space, space_free)

/* Sizes the reserves again for other write buffers, and as many databases, unless
 * @space_opts.reserve_bytes sets them. The store takes missing bytes as soon as there is space. */
void space_set_memtables(struct space *space, uint64_t memtable_bytes, uint32_t database_count);

/* Watches one more directory, which rows fill as they do the others, and makes a reserve there. */
MUST_CHECK enum embtier_err space_add(struct space *space, const char *directory,
                                      struct err_msg *msg);
/* Watches a directory no more, and gives up its reserve. At least one must be left. */
void space_remove(struct space *space, const char *directory);
/* Begins work that may use the reserve. True if a disk is nearly full, or may become so meanwhile,
 * through compactions, which write files and remove them again. */
bool space_begin_use(struct space *space);
/* Gives up the reserves of nearly full disks, now and while work is under way. True if one has been
 * given up. */
bool space_use(struct space *space);
/* Ends such work. True if no other work is under way. */
bool space_end_use(struct space *space);

/* Reports the bytes of rows that have changed in memory and are not in a write buffer. Called at
 * least once per look. */
void space_report(struct space *space, uint64_t unwritten_bytes);
/* Admits an update of @bytes. NO_SPACE: there is room for @ret_room_bytes now. Never waits. */
enum embtier_err space_admit(struct space *space, uint64_t bytes, uint64_t *ret_room_bytes);
/* Counts an update of a client's that was not admitted. */
void space_note_refusal(struct space *space, uint64_t bytes);
/* Looks now. NO_SPACE, with the figures, if there is no room for @bytes more of rows. */
MUST_CHECK enum embtier_err space_check(struct space *space, uint64_t bytes, const char *what,
                                        struct err_msg *msg);

struct space_stats {
    uint64_t reserve_bytes; /* of all directories, as it should be */
    uint64_t least_bytes;   /* the same of the directory with the least */
    uint64_t held_bytes;    /* of all directories, as it is */
    uint64_t free_bytes;    /* for rows, until updates are refused */
    uint64_t refusals;      /* refused updates */
    bool is_refusing;       /* an update was refused in the last minute */
};
void space_stats(struct space *space, struct space_stats *ret_stats);

#endif
