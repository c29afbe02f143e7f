/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/seeds/seeds.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"

#define FILE_BYTES_MAX MIB

static const char *root;
static char folder[] = "/tmp/fuzz-seeds-XXXXXX";

_Noreturn static void end(const char *what)
{
    fprintf(stderr, "fuzz_seeds: %s: %s\n", what, strerror(errno)); // NOLINT(concurrency-mt-unsafe)
    exit(1);                                                        // NOLINT(concurrency-mt-unsafe)
}

void seed_add(struct seed *seed, const void *bytes, size_t count)
{
    seed->bytes = realloc(seed->bytes, seed->count + count + 1);
    if (!seed->bytes)
        end("memory");
    if (count > 0)
        memcpy(seed->bytes + seed->count, bytes, count);
    seed->count += count;
}

void seed_add_byte(struct seed *seed, uint8_t byte)
{
    seed_add(seed, &byte, sizeof(byte));
}

void seed_clear(struct seed *seed)
{
    free(TAKE(seed->bytes));
    seed->count = 0;
}

static void make_folder(const char *path)
{
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        end(path);
}

void seed_write(struct seed *seed, const char *target, const char *name)
{
    char path[4096];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", root, target);
    make_folder(path);
    snprintf(path, sizeof(path), "%s/%s/seed-%s", root, target, name);
    file = fopen(path, "we");
    if (!file || fwrite(seed->bytes, 1, seed->count, file) != seed->count || fclose(file) != 0)
        end(path);
    seed_clear(seed);
}

void seed_write_text(const char *target, const char *name, int kind, const char *text)
{
    struct seed seed = { .bytes = NULL };

    if (kind >= 0)
        seed_add_byte(&seed, (uint8_t)kind);
    seed_add(&seed, text, strlen(text));
    seed_write(&seed, target, name);
}

void seed_write_file(const char *target, const char *name, int kind, const char *path)
{
    static uint8_t bytes[FILE_BYTES_MAX];
    struct seed seed = { .bytes = NULL };
    FILE *const file = fopen(path, "re");

    if (!file)
        end(path);
    if (kind >= 0)
        seed_add_byte(&seed, (uint8_t)kind);
    seed_add(&seed, bytes, fread(bytes, 1, sizeof(bytes), file));
    fclose(file);
    if (unlink(path) != 0)
        end(path);
    seed_write(&seed, target, name);
}

const char *seed_folder(void)
{
    return folder;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "Usage: fuzz_seeds FOLDER\nWrites FOLDER/TARGET/seed-NAME.\n");
        return 2;
    }
    root = argv[1];
    make_folder(root);
    if (!mkdtemp(folder))
        end(folder);
    seeds_of_messages();
    seeds_of_streams();
    seeds_of_submissions();
    seeds_of_store_files();
    seeds_of_placement_files();
    seeds_of_tensor_files();
    seeds_of_texts();
    seeds_of_access();
    if (rmdir(folder) != 0)
        end(folder);
    return 0;
}
