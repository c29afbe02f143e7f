/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptions beside files of tensors: an export's table.json (client/files/export_manifest.h),
 * and the index of a model in several files (client/files/tensor_index.h). The first byte chooses.
 */
#include "tests/fuzz/lib/fuzz.h"

#include "client/files/export_manifest.h"
#include "client/files/tensor_index.h"

#define INDEX_FILE "model.safetensors.index.json"

static void read_manifest(void)
{
    struct export_manifest manifest = { .parts = NULL };
    struct err_msg msg = { { 0 } };
    uint64_t rows = 0;

    if (export_manifest_read(fuzz_folder(), &manifest, &msg) != EMBTIER_OK) {
        FUZZ_CHECK(msg.text[0] && !strchr(msg.text, '\n'));
        return;
    }
    FUZZ_CHECK(table_spec_check(&manifest.spec, &msg) == EMBTIER_OK);
    for (uint32_t i = 0; i < manifest.part_count; i++) {
        rows += manifest.parts[i].rows;
        for (uint32_t c = 0; c < EXPORT_COLUMNS; c++)
            FUZZ_CHECK(!manifest.parts[i].files[c] || !strchr(manifest.parts[i].files[c], '/'));
    }
    FUZZ_CHECK(rows == manifest.rows);
    export_manifest_clear(&manifest);
}

static void find_tensor(const char *tensor)
{
    _cleanup_(freep) char *path = NULL;
    struct err_msg msg = { { 0 } };

    if (tensor_index_find(fuzz_folder(), tensor, &path, &msg) == EMBTIER_OK)
        FUZZ_CHECK(path && !strchr(path + strlen(fuzz_folder()) + 1, '/'));
    else
        FUZZ_CHECK(msg.text[0] && !path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_input input = { .at = data, .left = bytes };

    if (fuzz_byte(&input) & 1) {
        fuzz_put_file(EXPORT_MANIFEST_FILE, input.at, input.left);
        read_manifest();
    } else {
        fuzz_put_file(INDEX_FILE, input.at, input.left);
        find_tensor(NULL);
        find_tensor("embedding.weight");
    }
    return 0;
}
