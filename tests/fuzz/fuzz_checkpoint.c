/* SPDX-License-Identifier: Apache-2.0 */
/* Records of checkpoints (store/checkpoint/checkpoint_record.h). One that is read can be written,
 * and then is read again. */
#include "tests/fuzz/lib/sums.h"

#include "store/checkpoint/checkpoint_record.h"

#define SUM_LINE_CHARS 16 /* "crc32c 01234567\n" */

static void check(const struct checkpoint_record *record)
{
    _cleanup_(checkpoint_record_freep) struct checkpoint_record *again = NULL;
    struct err_msg msg = { { 0 } };

    for (uint32_t i = 0; i < record->database_count; i++) {
        FUZZ_CHECK(record->databases[i].shard < record->shard_count);
        for (uint32_t k = 0; k < record->databases[i].file_count; k++)
            FUZZ_CHECK(!strchr(record->databases[i].files[k].name, '/'));
    }
    FUZZ_CHECK(checkpoint_record_write(record, fuzz_folder(), &msg) == EMBTIER_OK);
    FUZZ_CHECK(checkpoint_record_read(fuzz_folder(), &again, &msg) == EMBTIER_OK);
    FUZZ_CHECK(again->database_count == record->database_count);
    FUZZ_CHECK(again->info.id == record->info.id && again->info.step == record->info.step);
    FUZZ_CHECK(again->info.has_step == record->info.has_step);
    FUZZ_CHECK(strcmp(again->info.metadata, record->info.metadata) == 0);
}

/* The last byte of the file is the end of its line, which the checksum leaves out. */
static void repair(char *text, size_t bytes)
{
    char last;

    if (bytes <= SUM_LINE_CHARS || strlen(text) != bytes || strncmp(text, "crc32c ", 7) != 0)
        return;
    last = text[bytes - 1];
    text[bytes - 1] = '\0';
    sum_put(text + 7, sum_of("", 0, "", text + SUM_LINE_CHARS));
    text[bytes - 1] = last;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    _cleanup_(checkpoint_record_freep) struct checkpoint_record *record = NULL;
    _cleanup_(freep) char *text = fuzz_text(data, bytes);
    struct err_msg msg = { { 0 } };

    repair(text, bytes);
    fuzz_put_file(CHECKPOINT_RECORD_FILE, text, bytes);
    if (checkpoint_record_read(fuzz_folder(), &record, &msg) == EMBTIER_OK)
        check(record);
    else
        FUZZ_CHECK(msg.text[0]);
    return 0;
}
