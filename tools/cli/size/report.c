/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/size/report.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "base/text/text_escape.h"
#include "tools/cli/cli.h"
#include "tools/cli/number.h"
#include "tools/cli/status/shown.h"
#include "tools/cli/text_table.h"

#define BYTES(value) SHOWN_BYTES((double)(value))

/* A figure of the memory or the SSD, for both kinds of output. */
struct figure {
    const char *key;
    const char *text;
    uint64_t bytes;
};

#define MEMORY_FIGURES 11
#define SSD_FIGURES    5

static void memory_figures(const struct sizes *sizes, struct figure figures[MEMORY_FIGURES])
{
    const struct figure all[MEMORY_FIGURES] = {
        { "tier_bytes", "tiers in memory", sizes->memory.tier_bytes },
        { "request_bytes", "requests, tickets, write queue", sizes->memory.request_bytes },
        { "lane_bytes", "lanes", sizes->memory.lane_bytes },
        { "program_bytes", "program and databases", sizes->memory.program_bytes },
        { "start_bytes", "= resident when ready", sizes->memory.start_bytes },
        { "memtable_bytes", "write buffers in use", sizes->memory.memtable_bytes },
        { "metadata_bytes", "indexes and filters", sizes->memory.metadata_bytes },
        { "lane_heap_bytes", "reading and evicting rows", sizes->memory.lane_heap_bytes },
        { "loaded_bytes", "= resident with all rows written", sizes->memory.loaded_bytes },
        { "session_bytes", "each client more, beside its arena", sizes->memory.session_bytes },
        { "most_bytes", "most that all budgets allow", sizes->memory.most_bytes },
    };

    for (size_t i = 0; i < MEMORY_FIGURES; i++)
        figures[i] = all[i];
}

static void ssd_figures(const struct sizes *sizes, struct figure figures[SSD_FIGURES])
{
    const struct figure all[SSD_FIGURES] = {
        { "row_bytes", "rows, keys, indexes, filters", sizes->ssd.row_bytes },
        { "database_bytes", "files of databases", sizes->ssd.database_bytes },
        { "reserve_bytes", "reserve", sizes->ssd.reserve_bytes },
        { "bytes", "= with all rows written", sizes->ssd.bytes },
        { "working_bytes", "more while rows change", sizes->ssd.working_bytes },
    };

    for (size_t i = 0; i < SSD_FIGURES; i++)
        figures[i] = all[i];
}

/* ---- JSON ---- */

static json_t *figures_to_json(const struct figure *figures, size_t count)
{
    json_t *object = json_object();

    for (size_t i = 0; object && i < count; i++) {
        if (json_object_set_new(object, figures[i].key, cli_json_u64(figures[i].bytes)) != 0) {
            json_decref(object);
            object = NULL;
        }
    }
    return object;
}

static json_t *table_to_json(const struct sizes *sizes, const struct size_table *table)
{
    const bool is_array = table->spec.home == EMBTIER_HOME_ARRAY;
    const char *const tier =
        table->tier != SIZE_NO_TIER ? sizes->config->cache.tiers[table->tier].name : NULL;

    return json_pack("{s:s, s:o, s:I, s:s, s:s, s:s, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                     "name", table->spec.name, "rows", cli_json_u64(table->spec.rows), "dim",
                     (json_int_t)table->spec.dim, "dtype", dtype_word(table->spec.dtype),
                     "optimizer", optimizer_word(table->spec.optimizer), "home",
                     home_word(table->spec.home), "tier", tier ? json_string(tier) : json_null(),
                     "row_bytes", (json_int_t)table->row_bytes, "array_bytes",
                     is_array ? cli_json_u64(table->array_bytes) : json_null(), "cached_bytes",
                     is_array ? json_null() : cli_json_u64(table->cached_bytes), "ssd_bytes",
                     cli_json_u64(table_size_sum(&table->ssd)), "ssd_data_bytes",
                     cli_json_u64(table->ssd.data_bytes), "ssd_index_bytes",
                     cli_json_u64(table->ssd.index_bytes), "ssd_filter_bytes",
                     cli_json_u64(table->ssd.filter_bytes), "ssd_blob_bytes",
                     cli_json_u64(table->ssd.blob_bytes));
}

/* Appends @value, which may be NULL, and frees @array if that fails. */
static json_t *append(json_t *array, json_t *value)
{
    if (json_array_append_new(array, value) == 0)
        return array;
    json_decref(array);
    return NULL;
}

static json_t *tables_to_json(const struct sizes *sizes)
{
    json_t *array = json_array();

    for (size_t i = 0; array && i < sizes->table_count; i++)
        array = append(array, table_to_json(sizes, &sizes->tables[i]));
    return array;
}

static json_t *tiers_to_json(const struct sizes *sizes)
{
    json_t *array = json_array();

    for (size_t t = 0; array && t < sizes->config->cache.tier_count; t++) {
        const struct tier_spec *const tier = &sizes->config->cache.tiers[t];

        array = append(array, json_pack("{s:s, s:o, s:o, s:o, s:b}", "name", tier->name, "bytes",
                                        cli_json_u64(tier->bytes), "array_bytes",
                                        cli_json_u64(tier->array_bytes), "array_needed_bytes",
                                        cli_json_u64(sizes->tiers[t].needed_bytes), "in_memory",
                                        sizes->tiers[t].is_memory));
    }
    return array;
}

static void add_lack_to_json(void *context, const struct size_lack *lack)
{
    (void)json_array_append_new(context, cli_json_text(lack->text));
}

static int print_json(const struct sizes *sizes, uint64_t free_bytes)
{
    struct figure memory[MEMORY_FIGURES], ssd[SSD_FIGURES];
    json_t *const lacks = json_array();
    int exit_code;
    bool fits;

    memory_figures(sizes, memory);
    ssd_figures(sizes, ssd);
    if (!lacks)
        return cli_fail(EMBTIER_NO_MEMORY, "");
    sizes_check(sizes, free_bytes, add_lack_to_json, lacks);
    fits = json_array_size(lacks) == 0;
    exit_code =
        cli_print_json(json_pack("{s:o, s:o, s:{s:o, s:o}, s:o, s:o, s:o, s:o, s:b, s:o}", "tables",
                                 tables_to_json(sizes), "tiers", tiers_to_json(sizes), "cache",
                                 "capacity_bytes", cli_json_u64(sizes->cache.capacity_bytes),
                                 "needed_bytes", cli_json_u64(sizes->cache.needed_bytes), "memory",
                                 figures_to_json(memory, MEMORY_FIGURES), "machine_memory_bytes",
                                 cli_json_u64(sizes->config->machine.memory_bytes), "ssd",
                                 figures_to_json(ssd, SSD_FIGURES), "free_bytes",
                                 free_bytes == UINT64_MAX ? json_null() : cli_json_u64(free_bytes),
                                 "fits", fits, "lacks", lacks),
                       JSON_DOUBLE_DIGITS);
    return exit_code == EXIT_DONE && !fits ? EXIT_FAILED : exit_code;
}

/* ---- Text ---- */

static bool add_cells(struct text_table *text, const char *const *cells, size_t count)
{
    bool ok = true;

    for (size_t i = 0; ok && i < count; i++)
        ok = text_table_add(text, "%s", cells[i]);
    return ok;
}

#define ADD_CELLS(text, ...)                                                                       \
    add_cells((text), (const char *const[]){ __VA_ARGS__ },                                        \
              ARRAY_LEN(((const char *const[]){ __VA_ARGS__ })))

static const char *home_text(const struct sizes *sizes, const struct size_table *table)
{
    if (table->spec.home == EMBTIER_HOME_CACHE)
        return "cache";
    return table->tier == SIZE_NO_TIER ? "array, no room"
                                       : sizes->config->cache.tiers[table->tier].name;
}

static bool print_tables(const struct sizes *sizes)
{
    _cleanup_(text_table_freep) struct text_table *text = text_table_new("lrrrrlrr");
    bool ok = text && ADD_CELLS(text, "TABLE", "ROWS", "ROW", "IN CACHE", "ARRAY", "PLACE", "SSD",
                                "OF IT INDEX+FILTER");

    for (size_t i = 0; ok && i < sizes->table_count; i++) {
        const struct size_table *const table = &sizes->tables[i];
        const bool is_array = table->spec.home == EMBTIER_HOME_ARRAY;

        ok = ADD_CELLS(text, table->spec.name, SHOWN_COUNT((double)table->spec.rows),
                       BYTES(table->row_bytes), is_array ? "-" : BYTES(table->cached_bytes),
                       is_array ? BYTES(table->array_bytes) : "-", home_text(sizes, table),
                       BYTES(table_size_sum(&table->ssd)),
                       BYTES(table->ssd.index_bytes + table->ssd.filter_bytes));
    }
    if (ok)
        text_table_print(text, 0, stdout);
    return ok;
}

static bool print_tiers(const struct sizes *sizes)
{
    _cleanup_(text_table_freep) struct text_table *text = text_table_new("lrrr");
    bool ok = text && ADD_CELLS(text, "TIER", "BYTES", "FOR ARRAYS", "TABLES NEED");

    for (size_t t = 0; ok && t < sizes->config->cache.tier_count; t++) {
        const struct tier_spec *const tier = &sizes->config->cache.tiers[t];

        ok = ADD_CELLS(text, tier->name, BYTES(tier->bytes), BYTES(tier->array_bytes),
                       BYTES(sizes->tiers[t].needed_bytes));
    }
    ok = ok && ADD_CELLS(text, "cache", BYTES(sizes->cache.capacity_bytes), "-",
                         BYTES(sizes->cache.needed_bytes));
    if (ok)
        text_table_print(text, 0, stdout);
    return ok;
}

static bool print_figures(const char *title, const struct figure *figures, size_t count)
{
    _cleanup_(text_table_freep) struct text_table *text = text_table_new("lr");
    bool ok = text && ADD_CELLS(text, title, "BYTES");

    for (size_t i = 0; ok && i < count; i++)
        ok = ADD_CELLS(text, figures[i].text, BYTES(figures[i].bytes));
    if (ok)
        text_table_print(text, 0, stdout);
    return ok;
}

static void print_lack(void *context, const struct size_lack *lack)
{
    bool *const fits = context;

    *fits = false;
    text_print(stdout, "too small: %s\n", lack->text);
}

static int print_text(const struct sizes *sizes, uint64_t free_bytes)
{
    struct figure memory[MEMORY_FIGURES], ssd[SSD_FIGURES];
    bool fits = true, ok;

    memory_figures(sizes, memory);
    ssd_figures(sizes, ssd);
    ok = print_tables(sizes) && putchar('\n') != EOF && print_tiers(sizes) &&
         putchar('\n') != EOF && print_figures("MEMORY", memory, MEMORY_FIGURES) &&
         putchar('\n') != EOF && print_figures("SSD", ssd, SSD_FIGURES);
    if (!ok)
        return cli_fail(EMBTIER_NO_MEMORY, "");
    printf("\nthis machine has %s of memory", BYTES(sizes->config->machine.memory_bytes));
    if (free_bytes != UINT64_MAX)
        printf(", and the data directories have %s free", BYTES(free_bytes));
    putchar('\n');
    sizes_check(sizes, free_bytes, print_lack, &fits);
    return fits ? EXIT_DONE : EXIT_FAILED;
}

int report_print(const struct cli *cli, const struct sizes *sizes, uint64_t free_bytes)
{
    return cli->json ? print_json(sizes, free_bytes) : print_text(sizes, free_bytes);
}
