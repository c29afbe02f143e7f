/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a start refuses to reserve more than is available, before it reserves anything. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "config/config_load.h"
#include "daemon/budget/budget.h"
#include "daemon/server_check.h"

static enum embtier_err check_with(uint64_t available_bytes, struct err_msg *msg)
{
    const struct machine machine = { .memory_bytes = 64 * GIB,
                                     .available_bytes = available_bytes,
                                     .core_count = 2,
                                     .descriptor_limit = 100000 };
    _cleanup_(config_freep) struct config *config = NULL;
    char directory[] = "/tmp/embtier-check-XXXXXX";
    char text[512];
    enum embtier_err err;

    assert_non_null(mkdtemp(directory));
    snprintf(text, sizeof(text),
             "data:\n  directories: ['%s']\nsocket: {path: '%s/s'}\n"
             "lanes:\n  count: 1\n  request_bytes: 20GiB\ncache: {tiers: [{bytes: 64MiB}]}\n",
             directory, directory);
    assert_int_equal(
        config_parse("e.yaml", text, strlen(text), &machine, budget_unbudgeted, &config, msg),
        EMBTIER_OK);
    config->data.must_exist = false;
    err = server_check(config, file_warning_log, NULL, msg);
    assert_int_equal(rmdir(directory), 0); /* the folder is empty */
    return err;
}

static void test_memory_that_is_not_available_is_refused(void **state)
{
    struct err_msg msg = { { 0 } };

    (void)state;
    assert_int_equal(check_with(20 * GIB, &msg), EMBTIER_CONFIG);
    if (!strstr(msg.text, "e.yaml:6: lanes.request_bytes: a start reserves "))
        fail_msg("%s", msg.text);
    assert_non_null(strstr(msg.text, "20GiB available now"));
    if (check_with(22 * GIB, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_that_is_not_available_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
