/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the lines about the whole server fit on a terminal of 80 columns, whatever the
 * figures. The server's answers are made up here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/macros.h"
#include "tools/cli/top/frame.h"

#define COLUMNS 80

const struct panel panels[PANEL_COUNT];
static double metric;
static struct embtier_compaction_database database;

struct rates rates_between(const struct sample *before, const struct sample *now)
{
    return (struct rates){ .before = before, .now = now };
}

double rates_metric(const struct rates *rates, const char *name, const char *label_value)
{
    (void)rates;
    (void)name;
    (void)label_value;
    return metric;
}

enum embtier_err overview_make(const struct reading *reading, enum overview_order order,
                               struct overview *ret_overview)
{
    (void)reading;
    (void)order;
    (void)ret_overview;
    return EMBTIER_OK;
}

void overview_clear(struct overview *overview)
{
    (void)overview;
}

uint64_t embtier_status_uptime_ms(const struct embtier_status *status)
{
    (void)status;
    return 0;
}

size_t embtier_compaction_list_count(const struct embtier_compaction_list *list)
{
    (void)list;
    return 1;
}

const struct embtier_compaction_database *
embtier_compaction_list_at(const struct embtier_compaction_list *list, size_t index)
{
    (void)list;
    (void)index;
    return &database;
}

static void test_rates_fit_on_80_columns(void **state)
{
    static const double values[] = { 0, 999999, 1047500, 1023.9 * (1 << 30), 999.9e15 };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        const struct sample now = { .compactions = (struct embtier_compaction_list *)&database };
        struct frame frame = { .rates = { .now = &now },
                               .overview = { .version = "10.10.10",
                                             .uptime_s = 86400.0 * 9999,
                                             .health = HEALTH_WARNING,
                                             .clients = { .sessions = 100000 } } };
        char *text = NULL;
        size_t bytes = 0;
        FILE *const out = open_memstream(&text, &bytes);

        metric = frame.overview.ssd.room_bytes = frame.overview.ssd.pending_bytes = values[i];
        database = (struct embtier_compaction_database){ .done_bytes = (uint64_t)values[i],
                                                         .total_bytes = UINT64_MAX,
                                                         .has_remaining = 1,
                                                         .remaining_ms = UINT64_MAX };
        assert_non_null(out);
        frame_print_head(&frame, out);
        assert_int_equal(fclose(out), 0);
        for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
            if (strcspn(line, "\n") > COLUMNS)
                fail_msg("more than %d columns: %s", COLUMNS, line);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates_fit_on_80_columns),
    };

    return cmocka_run_group_tests_name("top_frame", tests, NULL, NULL);
}
