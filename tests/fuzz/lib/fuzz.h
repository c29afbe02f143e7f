/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz.h: parts that the fuzz targets share: numbers taken from the input, texts and files made of
 * it, and a check that ends the program. Each target includes it once. */
#ifndef EMBTIER_TESTS_FUZZ_LIB_FUZZ_H
#define EMBTIER_TESTS_FUZZ_LIB_FUZZ_H

#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"

/* libFuzzer, AFL++ or replay_main.c call this with one input. It returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Ends the program, which a fuzzer takes for a crash, unless @condition holds. */
#define FUZZ_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* ---- Numbers ---- */

/* The rest of an input. */
struct fuzz_input {
    const uint8_t *at;
    size_t left;
};

/* Takes the next @bytes of the input; those that it does not have are 0. */
static inline void fuzz_take(struct fuzz_input *input, void *ret_bytes, size_t bytes)
{
    const size_t taken = MIN(bytes, input->left);

    memset(ret_bytes, 0, bytes);
    if (taken > 0)
        memcpy(ret_bytes, input->at, taken);
    input->at += taken;
    input->left -= taken;
}

static inline uint8_t fuzz_byte(struct fuzz_input *input)
{
    uint8_t value;

    fuzz_take(input, &value, sizeof(value));
    return value;
}

/* Sizes of pieces that follow from the input's first bytes. */
struct fuzz_pieces {
    uint32_t random;
};

static inline struct fuzz_pieces fuzz_pieces(struct fuzz_input *input)
{
    return (struct fuzz_pieces){ .random = fuzz_byte(input) };
}

/* Returns the size of the next piece, 1 to @most. Seed 0 makes all pieces as large as may be. Most
 * pieces of other seeds are small. */
static inline size_t fuzz_piece(struct fuzz_pieces *pieces, size_t most)
{
    size_t piece;

    if (pieces->random == 0)
        return most;
    pieces->random = pieces->random * 1664525 + 1013904223;
    piece = (size_t)1 + (pieces->random >> 16) % (pieces->random & 1 << 12 ? 8 : 4096);
    return MIN(piece, most);
}

/* ---- Texts and copies ---- */

/* Returns a malloced copy of exactly these bytes, so that the address sanitizer sees a read behind
 * them. */
static inline uint8_t *fuzz_copy(const void *bytes, size_t count)
{
    uint8_t *const copy = malloc(MAX(count, (size_t)1));

    FUZZ_CHECK(copy);
    if (count > 0)
        memcpy(copy, bytes, count);
    return copy;
}

/* Returns the bytes as a malloced text. It ends at a zero among them. */
static inline char *fuzz_text(const void *bytes, size_t count)
{
    char *const text = malloc(count + 1);

    FUZZ_CHECK(text);
    if (count > 0)
        memcpy(text, bytes, count);
    text[count] = '\0';
    return text;
}

/* ---- Files ---- */

static inline int fuzz_remove_one(const char *path, const struct stat *stat, int type,
                                  struct FTW *walk)
{
    (void)stat;
    (void)type;
    (void)walk;
    return remove(path);
}

static char fuzz_folder_path[128];

static inline void fuzz_remove_folder(void)
{
    (void)nftw(fuzz_folder_path, fuzz_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Returns this process's folder for files, in memory unless $TMPDIR names another place. It goes
 * when the process ends by itself. */
static inline const char *fuzz_folder(void)
{
    const char *const root = getenv("TMPDIR"); // NOLINT(concurrency-mt-unsafe)

    if (fuzz_folder_path[0])
        return fuzz_folder_path;
    snprintf(fuzz_folder_path, sizeof(fuzz_folder_path), "%s/fuzz-XXXXXX",
             root ? root : "/dev/shm");
    FUZZ_CHECK(mkdtemp(fuzz_folder_path));
    FUZZ_CHECK(atexit(fuzz_remove_folder) == 0);
    return fuzz_folder_path;
}

/* Makes or replaces the file @name in fuzz_folder(). */
static inline void fuzz_put_file(const char *name, const void *bytes, size_t count)
{
    char path[256];
    int file;

    snprintf(path, sizeof(path), "%s/%s", fuzz_folder(), name);
    file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FUZZ_CHECK(file >= 0);
    FUZZ_CHECK(count == 0 || write(file, bytes, count) == (ssize_t)count);
    close(file);
}

#endif
