/* SPDX-License-Identifier: Apache-2.0 */
/* Seeds of fuzz_safetensors and fuzz_manifest, written by the client's own code. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/files/export_manifest.h"
#include "client/files/tensor_file.h"
#include "tests/fuzz/seeds/seeds.h"

#define ROWS 3

enum { KIND_INDEX, KIND_MANIFEST };

static void must(enum embtier_err err, const struct err_msg *msg)
{
    if (err == EMBTIER_OK)
        return;
    fprintf(stderr, "%s: %s\n", err_name(err), msg->text);
    abort();
}

static void write_file(const char *target, const char *name, int kind, const char *file)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/%s", seed_folder(), file);
    seed_write_file(target, name, kind, path);
}

static struct tensor_written write_tensors(int folder, enum tensor_format format,
                                           const char *const *metadata)
{
    const struct tensor tensors[] = {
        { .name = "weight", .dtype = TENSOR_F32, .columns = 4 },
        { .name = "ids", .dtype = TENSOR_U64 },
    };
    const struct tensor_writer_opts opts = { .folder = folder,
                                             .stem = "t",
                                             .format = format,
                                             .tensors = tensors,
                                             .tensor_count = 2,
                                             .most_rows = ROWS };
    static const uint8_t rows[ROWS * 16];
    struct tensor_writer *writer = NULL;
    struct tensor_written written = { 0 };
    struct err_msg msg = { { 0 } };

    must(tensor_writer_new(&opts, &writer, &msg), &msg);
    must(tensor_writer_add(writer, 0, rows, 16, ROWS, &msg), &msg);
    must(tensor_writer_add(writer, 1, rows, 8, ROWS, &msg), &msg);
    must(tensor_writer_end(writer, metadata, &written, &msg), &msg);
    tensor_writer_free(writer);
    return written;
}

static void seed_of_manifest(int folder, const struct tensor_written *written)
{
    struct export_manifest manifest = {
        .spec = { .name = "users",
                  .dim = 4,
                  .rows = 100,
                  .dtype = EMBTIER_DTYPE_F32,
                  .init = EMBTIER_INIT_UNIFORM,
                  .init_params = { -1, 1 } },
        .format = TENSOR_SAFETENSORS,
        .checkpoint = 3,
    };
    struct err_msg msg = { { 0 } };

    must(export_manifest_add(&manifest, written, &msg), &msg);
    must(export_manifest_add(&manifest, written, &msg), &msg);
    must(export_manifest_write(&manifest, folder, &msg), &msg);
    export_manifest_clear(&manifest);
    write_file("fuzz_manifest", "manifest", KIND_MANIFEST, EXPORT_MANIFEST_FILE);
}

/* A tensor of one number, with so many dimensions: as many as can be read, and one more. */
static void write_dimensions(uint32_t rank)
{
    struct seed file = { .bytes = NULL };
    char header[256], name[40];
    size_t used =
        (size_t)snprintf(header, sizeof(header), "{\"a\":{\"dtype\":\"F32\",\"shape\":[1");
    uint64_t length;

    for (uint32_t i = 1; i < rank; i++)
        used += (size_t)snprintf(header + used, sizeof(header) - used, ",1");
    used += (size_t)snprintf(header + used, sizeof(header) - used, "],\"data_offsets\":[0,4]}}");
    length = used;
    seed_add(&file, &length, sizeof(length));
    seed_add(&file, header, used);
    seed_add(&file, "\0\0\0\0", 4);
    snprintf(name, sizeof(name), "rank-%" PRIu32, rank);
    seed_write(&file, "fuzz_safetensors", name);
}

void seeds_of_tensor_files(void)
{
    static const char *const metadata[] = { "format", "pt", NULL };
    const int folder = open(seed_folder(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct tensor_written written;

    written = write_tensors(folder, TENSOR_SAFETENSORS, metadata);
    write_file("fuzz_safetensors", "two-tensors", -1, "t.safetensors");
    seed_of_manifest(folder, &written);
    (void)write_tensors(folder, TENSOR_NPY, NULL);
    write_file("fuzz_safetensors", "npy-2d", -1, "t.weight.npy");
    write_file("fuzz_safetensors", "npy-1d", -1, "t.ids.npy");
    close(folder);
    write_dimensions(TENSOR_RANK_MAX);
    write_dimensions(TENSOR_RANK_MAX + 1);
    seed_write_text("fuzz_manifest", "index", KIND_INDEX,
                    "{\"metadata\": {\"total_size\": 5}, \"weight_map\": "
                    "{\"embedding.weight\": \"model-00001.safetensors\"}}");
}
