/* SPDX-License-Identifier: Apache-2.0 */
/* Configurations of the server (config/config_load.h), on a machine that does not change. A mistake
 * is one line. */
#include "tests/fuzz/lib/fuzz.h"

#include "config/config_load.h"
#include "daemon/budget/budget.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const struct machine machine = { .memory_bytes = 64 * GIB,
                                            .core_count = 16,
                                            .descriptor_limit = 65536 };
    _cleanup_(freep) uint8_t *text = fuzz_copy(data, bytes);
    struct config *config = NULL;
    struct err_msg msg = { { 0 } };

    if (config_parse("e.yaml", (const char *)text, bytes, &machine, budget_unbudgeted, &config,
                     &msg) == EMBTIER_OK)
        config_free(config);
    else
        FUZZ_CHECK(msg.text[0] && !strchr(msg.text, '\n'));
    return 0;
}
