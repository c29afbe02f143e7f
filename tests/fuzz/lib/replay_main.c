/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over inputs that exist: the main() of builds without libFuzzer. So every
 * compiler's tests repeat the corpus, and AFL++ can run the target.
 *
 *     fuzz_config tests/fuzz/corpus/fuzz_config   each file in the folder
 *     fuzz_config FILE...                         each of these
 *     fuzz_config                                 standard input, once */
#include <dirent.h>
#include <errno.h>

#include "tests/fuzz/lib/fuzz.h"

/* Inputs are smaller than this. */
#define INPUT_BYTES_MAX MIB

static uint32_t inputs;

static void run_file(FILE *file)
{
    static uint8_t bytes[INPUT_BYTES_MAX];
    const size_t count = fread(bytes, 1, sizeof(bytes), file);
    uint8_t *const copy = fuzz_copy(bytes, count);

    (void)LLVMFuzzerTestOneInput(copy, count);
    free(copy);
    inputs++;
}

static bool run_path(const char *path)
{
    FILE *const file = fopen(path, "re");

    if (!file) {
        fprintf(stderr, "cannot read %s: %s\n", path,
                strerror(errno)); // NOLINT(concurrency-mt-unsafe)
        return false;
    }
    fprintf(stderr, "%s\n", path); /* the last one is that which crashed */
    run_file(file);
    fclose(file);
    return true;
}

static bool run_folder(DIR *folder, const char *path)
{
    const struct dirent *entry;
    bool good = true;

    while ((entry = readdir(folder))) { // NOLINT(concurrency-mt-unsafe)
        char name[4096];

        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        good &= run_path(name);
    }
    return good;
}

static bool run(const char *path)
{
    DIR *const folder = opendir(path);
    bool good;

    if (!folder)
        return run_path(path);
    good = run_folder(folder, path);
    closedir(folder);
    return good;
}

int main(int argc, char **argv)
{
    bool good = true;

    if (argc == 1)
        run_file(stdin);
    for (int i = 1; i < argc; i++)
        good &= run(argv[i]);
    printf("%u inputs\n", inputs);
    return good && inputs > 0 ? 0 : 1;
}
