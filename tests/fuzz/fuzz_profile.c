/* SPDX-License-Identifier: Apache-2.0 */
/* Files of measured profiles (placement/profile/profile_file.h). One that is read can be written
 * line by line. */
#include "tests/fuzz/lib/fuzz.h"

#include "placement/profile/profile_file.h"

static void check(const struct measured_profile *measured)
{
    for (uint32_t line = 0; line <= measured->table_count; line++) {
        _cleanup_(freep) char *text = NULL;
        size_t bytes = 0;

        FUZZ_CHECK(profile_file_line(measured, line, &text, &bytes) == EMBTIER_OK);
        FUZZ_CHECK(bytes > 0 && text[bytes - 1] == '\n');
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    _cleanup_(measured_profile_freep) struct measured_profile *measured = NULL;
    struct err_msg msg = { { 0 } };
    char path[256];

    fuzz_put_file("profile", data, bytes);
    snprintf(path, sizeof(path), "%s/profile", fuzz_folder());
    if (profile_file_load(path, &measured, &msg) == EMBTIER_OK)
        check(measured);
    else
        FUZZ_CHECK(msg.text[0] && !strchr(msg.text, '\n'));
    return 0;
}
