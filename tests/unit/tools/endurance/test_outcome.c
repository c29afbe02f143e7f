/* SPDX-License-Identifier: Apache-2.0 */
/* Do the bytes of other programs count for the drives, and not as the server's amplification? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include "placement/writes/writes.h"
#include "tools/cli/endurance/forecast/outcome.h"

#define DAY_S 86400.0

/* A change of drives needs neither a model nor other layouts. */
enum embtier_err writes_predict(const struct writes_opts *opts, struct table_writes *writes,
                                struct err_msg *msg)
{
    (void)opts, (void)writes, (void)msg;
    fail();
    return EMBTIER_INVALID;
}

double basis_room_bytes(const struct basis *basis, const struct change_tiers *tiers)
{
    (void)basis, (void)tiers;
    fail();
    return 0;
}

double layouts_amplification(const struct layouts *layouts, enum config_layout now,
                             double amplification, enum config_layout other)
{
    (void)layouts, (void)now, (void)amplification, (void)other;
    fail();
    return 0;
}

static void test_others_count_for_the_drives_alone(void **state)
{
    static const struct measured_profile profile = { 0 };
    static const struct basis basis = {
        .profile = &profile,
        .seconds = DAY_S,
        .has_rates = true,
        .causes = { { "flush", 30 },
                    { "compaction", 20 },
                    { "blob", 0 },
                    { FORECAST_OTHERS, 950 } },
        .cause_count = 4,
        .updated_bytes = 100,
        .stored_row_bytes = 25,
    };
    const struct outcome_opts opts = { .basis = &basis };
    const struct change change = { .kind = CHANGE_DRIVE, .drive = { 500, 36500, 5 } };
    struct outcome outcome;
    struct err_msg msg;

    (void)state;
    assert_int_equal(outcome_make(&opts, &change, &outcome, &msg), EMBTIER_OK);
    assert_float_equal(outcome.amplification, 0.5, 1e-9);
    assert_float_equal(outcome.server_bytes, 50, 1e-9);
    assert_float_equal(outcome.bytes, 1000, 1e-9);
    assert_float_equal(outcome.drive_writes, 2, 1e-9);
    assert_float_equal(outcome.years, 0.1, 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_others_count_for_the_drives_alone),
    };

    return cmocka_run_group_tests_name("outcome", tests, NULL, NULL);
}
