/* SPDX-License-Identifier: Apache-2.0 */
/* Files of tensors in both formats (client/files/tensor_file.h). All rows of a file that is
 * accepted can be read. The length in front of a safetensors header that is too long for the file
 * is set to the longest one that fits: otherwise few inputs would pass that check. */
#include "tests/fuzz/lib/fuzz.h"

#include "client/files/safetensors.h"
#include "client/files/tensor_file.h"

#define LENGTH_KEPT 0x7f /* the highest byte of a length that stays as it is */

static void check_tensor(struct tensor_reader *reader, uint32_t index)
{
    const struct tensor_info *const info = tensor_reader_at(reader, index);
    const uint32_t rows = (uint32_t)MIN(info->rows, UINT64_C(16));
    _cleanup_(freep) uint8_t *place = malloc(rows * info->row_bytes + 1);
    struct err_msg msg = { { 0 } };

    FUZZ_CHECK(place && info->rank <= TENSOR_RANK_MAX && strlen(info->name) <= TENSOR_NAME_MAX);
    FUZZ_CHECK(info->bytes == info->rows * info->row_bytes);
    FUZZ_CHECK(tensor_reader_read(reader, index, 0, rows, place, info->row_bytes, &msg) ==
               EMBTIER_OK);
    if (info->rows > 0)
        FUZZ_CHECK(tensor_reader_read(reader, index, info->rows - 1, 1, place, info->row_bytes,
                                      &msg) == EMBTIER_OK);
}

static void repair(uint8_t *file, size_t bytes)
{
    uint64_t length;

    if (bytes < SAFETENSORS_START_BYTES || memcmp(file, "\x93NUM", 4) == 0 ||
        file[7] == LENGTH_KEPT)
        return;
    memcpy(&length, file, sizeof(length));
    length = MIN(length, (uint64_t)bytes - SAFETENSORS_START_BYTES);
    memcpy(file, &length, sizeof(length));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    _cleanup_(tensor_reader_freep) struct tensor_reader *reader = NULL;
    _cleanup_(freep) uint8_t *file = fuzz_copy(data, bytes);
    struct err_msg msg = { { 0 } };
    char path[256];

    repair(file, bytes);
    fuzz_put_file("tensors", file, bytes);
    snprintf(path, sizeof(path), "%s/tensors", fuzz_folder());
    if (tensor_reader_open(path, &reader, &msg) != EMBTIER_OK) {
        FUZZ_CHECK(msg.text[0] && !strchr(msg.text, '\n'));
        return 0;
    }
    for (uint32_t i = 0; i < tensor_reader_count(reader); i++)
        check_tensor(reader, i);
    (void)tensor_reader_metadata(reader, "format");
    return 0;
}
