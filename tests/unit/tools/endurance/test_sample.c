/* SPDX-License-Identifier: Apache-2.0 */
/* Are two samples of one start of the server told from those of two? Those are of a server in this
 * file. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <math.h>
#include <string.h>

#include "base/macros.h"
#include "tools/cli/cli.h"
#include "tools/cli/endurance/devices.h"
#include "tools/cli/endurance/sample.h"

struct embtier_status {
    uint64_t uptime_ms;
};

struct embtier_table_list {
    struct embtier_table_info info;
};

uint64_t embtier_status_uptime_ms(const struct embtier_status *status)
{
    return status->uptime_ms;
}

size_t embtier_table_list_count(const struct embtier_table_list *list)
{
    (void)list;
    return 1;
}

const struct embtier_table_info *embtier_table_list_at(const struct embtier_table_list *list,
                                                       size_t index)
{
    (void)index;
    return &list->info;
}

/* Not called. */

enum embtier_err embtier_status(struct embtier *server, struct embtier_status **ret_status)
{
    (void)server;
    (void)ret_status;
    return EMBTIER_UNSUPPORTED;
}

enum embtier_err embtier_table_list(struct embtier *server, struct embtier_table_list **ret_list)
{
    (void)server;
    (void)ret_list;
    return EMBTIER_UNSUPPORTED;
}

void embtier_status_free(struct embtier_status *status)
{
    (void)status;
}

void embtier_table_list_free(struct embtier_table_list *list)
{
    (void)list;
}

double status_figure(const struct embtier_status *status, const char *name, const char *label)
{
    (void)status;
    (void)name;
    (void)label;
    return (double)NAN;
}

/* ---- Tests ---- */

static enum embtier_err check(uint64_t uptime_ms, const struct embtier_table_info *info)
{
    struct embtier_status then = { 1000 }, now = { uptime_ms };
    struct embtier_table_list old = { { .table_id = 7,
                                        .lookup_rows = 5,
                                        .missed_lookup_rows = 5,
                                        .updated_rows = 5,
                                        .flush_bytes = 5,
                                        .compaction_bytes = 5,
                                        .log_bytes = 5,
                                        .import_bytes = 5 } };
    struct embtier_table_list fresh = { *info };
    struct err_msg msg = { { 0 } };
    const enum embtier_err err =
        endurance_sample_check(&(struct endurance_sample){ &then, &old },
                               &(struct endurance_sample){ &now, &fresh }, &msg);

    if (err == EMBTIER_AGAIN)
        assert_non_null(strstr(msg.text, "run this again"));
    return err;
}

static void test_counts_only_grow_until_a_restart(void **state)
{
    const struct embtier_table_info same = { .table_id = 7,
                                             .lookup_rows = 5,
                                             .missed_lookup_rows = 5,
                                             .updated_rows = 6,
                                             .flush_bytes = 5,
                                             .compaction_bytes = 9,
                                             .log_bytes = 5,
                                             .import_bytes = 5 };
    const struct embtier_table_info other = { .table_id = 8 };
    struct embtier_table_info fallen[7] = { same, same, same, same, same, same, same };

    (void)state;
    assert_int_equal(check(2000, &same), EMBTIER_OK);
    assert_int_equal(check(2000, &other), EMBTIER_OK); /* a new table */
    assert_int_equal(check(1000, &same), EMBTIER_AGAIN);
    fallen[0].lookup_rows = 4;
    fallen[1].missed_lookup_rows = 4;
    fallen[2].updated_rows = 4;
    fallen[3].flush_bytes = 4;
    fallen[4].compaction_bytes = 4;
    fallen[5].log_bytes = 4;
    fallen[6].import_bytes = 4;
    for (size_t i = 0; i < ARRAY_LEN(fallen); i++)
        assert_int_equal(check(2000, &fallen[i]), EMBTIER_AGAIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_only_grow_until_a_restart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
