/* SPDX-License-Identifier: Apache-2.0 */
/* Files of placement plans (placement/plan/plan_file.h). A plan that is read can be written, and
 * the text then is read as the same text. */
#include "tests/fuzz/lib/fuzz.h"

#include "placement/plan/plan_file.h"

/* Returns the plan's text, malloced. */
static char *write_plan(const struct plan *plan, size_t *ret_bytes)
{
    char *text = NULL;
    FILE *const file = open_memstream(&text, ret_bytes);

    FUZZ_CHECK(file);
    plan_file_write(plan, file);
    FUZZ_CHECK(fclose(file) == 0);
    return text;
}

static void check(const struct plan *plan)
{
    _cleanup_(plan_freep) struct plan *again = NULL;
    _cleanup_(freep) char *text = NULL, *text_again = NULL;
    struct err_msg msg = { { 0 } };
    size_t bytes = 0, bytes_again = 0;

    text = write_plan(plan, &bytes);
    if (plan_file_parse("again", text, bytes, &again, &msg) != EMBTIER_OK) {
        fprintf(stderr, "%s\n%s\n", msg.text, text);
        abort();
    }
    text_again = write_plan(again, &bytes_again);
    FUZZ_CHECK(bytes == bytes_again && memcmp(text, text_again, bytes) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    _cleanup_(plan_freep) struct plan *plan = NULL;
    _cleanup_(freep) uint8_t *text = fuzz_copy(data, bytes);
    struct err_msg msg = { { 0 } };

    if (plan_file_parse("e.yaml", (const char *)text, bytes, &plan, &msg) == EMBTIER_OK)
        check(plan);
    else
        FUZZ_CHECK(msg.text[0] && !strchr(msg.text, '\n'));
    return 0;
}
