/* SPDX-License-Identifier: Apache-2.0 */
/* seeds.h: valid inputs of the fuzz targets, made by the encoders that the product and its tests
 * have. fuzz_seeds FOLDER writes each as FOLDER/TARGET/seed-NAME. Thread: one. */
#ifndef EMBTIER_TESTS_FUZZ_SEEDS_SEEDS_H
#define EMBTIER_TESTS_FUZZ_SEEDS_SEEDS_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of one seed. */
struct seed {
    uint8_t *bytes;
    size_t count;
};

void seed_add(struct seed *seed, const void *bytes, size_t count);
void seed_add_byte(struct seed *seed, uint8_t byte);
void seed_clear(struct seed *seed);
/* Writes the seed and frees its bytes. */
void seed_write(struct seed *seed, const char *target, const char *name);
/* Writes a text, behind the byte @kind that chooses a parser; -1: there is none. */
void seed_write_text(const char *target, const char *name, int kind, const char *text);
/* The same for the contents of a file, which is removed. */
void seed_write_file(const char *target, const char *name, int kind, const char *path);

/* A folder for files, which is empty at first. */
const char *seed_folder(void);

/* Each writes the seeds of some targets. */
void seeds_of_messages(void);
void seeds_of_streams(void);
void seeds_of_submissions(void);
void seeds_of_store_files(void);
void seeds_of_placement_files(void);
void seeds_of_tensor_files(void);
void seeds_of_texts(void);
void seeds_of_access(void);

#endif
