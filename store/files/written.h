/* SPDX-License-Identifier: Apache-2.0 */
/* written.h: bytes that this process has written to files, by the data directory that they lie in.
 * Thread: any. */
#ifndef EMBTIER_STORE_FILES_WRITTEN_H
#define EMBTIER_STORE_FILES_WRITTEN_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes these the data directories, and begins their counts. The texts are copied; one that is too
 * long, or that memory lacks for, counts nothing. */
void written_begin(char *const *directories, uint32_t count);
/* Adds one, whose bytes count from now on. One that is there already goes on. One that has left
 * gets a new number while there are any, as another drive may be there now. */
void written_add_directory(const char *directory);
/* Notes that @directory is no data directory any more. Bytes that are still written there count as
 * before. */
void written_leave_directory(const char *directory);
/* Returns how many numbers were given out, also to directories that have left. */
uint32_t written_directory_count(void);
bool written_has_left(uint32_t directory);
/* Returns the text, malloced; NULL: memory lacks. */
char *written_directory(uint32_t directory);
/* Forgets the directories; no file is written any more. */
void written_end(void);
/* Returns the number of the directory that @path lies in, for written_add(). If there is only one,
 * it is that one. */
uint32_t written_place(const char *path);
void written_add(uint32_t place, uint64_t bytes);
/* Returns the bytes of the directory numbered @directory, in the order of written_begin(); those
 * that were added follow. */
uint64_t written_below(uint32_t directory);

#ifdef __cplusplus
}
#endif
#endif
