/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/tune/load.h"

#include <jansson.h>

#include "base/spec/table_spec.h"
#include "placement/profile/profile_file.h"
#include "tools/cli/tune/popularity.h"

#define ROWS_MOST 0x1p53 /* that a double tells apart */

void tune_load_clear(struct tune_load *load)
{
    json_decref(load->tables);
    load->tables = NULL;
}

static json_t *table_json(double rows, double row_bytes)
{
    return json_pack("{s:I, s:I}", "rows", (json_int_t)MIN(rows, ROWS_MOST), "row_bytes",
                     (json_int_t)row_bytes);
}

static double row_bytes_of(uint32_t dim, enum embtier_dtype dtype, enum embtier_optimizer optimizer)
{
    const struct table_spec spec = { .dim = dim, .dtype = dtype, .optimizer = optimizer };

    return (double)table_spec_weight_bytes(&spec) + table_spec_state_bytes(&spec);
}

int tune_load_given(const struct embtier_table_options *options, uint64_t row_bytes,
                    struct tune_load *ret_load)
{
    const double bytes = row_bytes > 0
                             ? (double)row_bytes
                             : row_bytes_of(options->dim, options->dtype, options->optimizer);

    ret_load->is_logged = options->durability != EMBTIER_DURABILITY_REPLAY;
    ret_load->tables = json_pack("[o]", table_json((double)options->rows, bytes));
    return ret_load->tables ? -1 : cli_fail(EMBTIER_NO_MEMORY, "");
}

static bool is_logged(const struct embtier_table_info *info)
{
    return info->durability != EMBTIER_DURABILITY_REPLAY;
}

int tune_load_served(struct cli *cli, struct tune_load *ret_load)
{
    struct embtier_table_list *list = NULL;
    const int exit_code = cli_connect(cli, 0);
    enum embtier_err err;

    if (exit_code != 0)
        return exit_code;
    err = embtier_table_list(cli->server, &list);
    if (err != EMBTIER_OK)
        return cli_fail_server(cli, err);
    ret_load->tables = json_array();
    for (int pass = 0; pass < 2 && json_array_size(ret_load->tables) == 0; pass++) {
        ret_load->is_logged = pass == 1;
        for (size_t i = 0; i < embtier_table_list_count(list); i++) {
            const struct embtier_table_info *const info = embtier_table_list_at(list, i);

            if (info->rows != EMBTIER_UNBOUNDED && info->rows > 0 &&
                is_logged(info) == ret_load->is_logged &&
                (info->home != EMBTIER_HOME_ARRAY || ret_load->is_logged))
                (void)json_array_append_new(
                    ret_load->tables,
                    table_json((double)info->rows, (double)info->weight_bytes + info->state_bytes));
        }
    }
    embtier_table_list_free(list);
    if (json_array_size(ret_load->tables) > 0)
        return -1;
    return cli_fail(EMBTIER_NO_TABLE, "the server has no table that has a number of rows and is "
                                      "not an array: give --rows and --dim");
}

int tune_load_profile(const char *path, struct tune_load *ret_load)
{
    _cleanup_(measured_profile_freep) struct measured_profile *measured = NULL;
    struct err_msg msg = { { 0 } };
    double lookups = 0, sum = 0;
    const enum embtier_err err = profile_file_load(path, &measured, &msg);

    if (err != EMBTIER_OK)
        return cli_fail(err, msg.text);
    ret_load->tables = json_array();
    for (uint32_t i = 0; i < measured->table_count; i++) {
        const struct measured_table *const one = &measured->tables[i];
        const double rows = one->table.rows > 0 ? (double)one->table.rows : one->summary.rows;

        if (rows < 1)
            continue;
        (void)json_array_append_new(
            ret_load->tables,
            table_json(rows, row_bytes_of(one->table.dim, one->table.dtype, one->optimizer)));
        lookups += (double)one->summary.lookups;
        sum += (double)one->summary.lookups * popularity_exponent(&one->cdf, rows);
    }
    if (json_array_size(ret_load->tables) == 0)
        return cli_fail(EMBTIER_NO_TABLE, "the profile has no rows");
    ret_load->zipf = lookups > 0 ? sum / lookups : 0;
    return -1;
}
