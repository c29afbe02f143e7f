/* SPDX-License-Identifier: Apache-2.0 */
/* The small files of a store: catalog and journal (store/catalog.h), the identity of a directory,
 * and the record of the plan in force. The first byte chooses. A journal comes behind a catalog
 * that names it: the first line of the input that begins with a digit 0 ends the catalog. */
#include "tests/fuzz/lib/sums.h"

#include "daemon/jobs/plan/plan_record.h"
#include "store/catalog.h"
#include "store/catalog_file.h"
#include "store/store_identity.h"

#define JOURNAL_FILE "catalog-000001.jsonl"
#define SPLIT        "\n0\n"

/* Seals each record of a table, then the file. */
static char *repair_catalog(char *text)
{
    _cleanup_(json_decrefp) json_t *root = json_loads(text, 0, NULL);
    const json_t *const tables = json_object_get(root, "tables");
    char *repaired = NULL;

    for (size_t i = 0; i < json_array_size(tables); i++)
        (void)!summed_json_seal(json_array_get(tables, i));
    if (json_array_size(tables) > 0)
        repaired = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    if (repaired) {
        free(text);
        text = repaired;
    }
    sum_repair_json(text);
    return text;
}

/* Changes the catalog as a server does. */
static void change(struct catalog *catalog)
{
    const uint32_t count = catalog_count(catalog);
    struct err_msg msg = { { 0 } };

    for (uint32_t i = 0; i < count; i++)
        FUZZ_CHECK(table_spec_check(&catalog_at(catalog, i)->spec, &msg) == EMBTIER_OK);
    if (count > 0)
        FUZZ_CHECK(catalog_remove(catalog, catalog_at(catalog, 0)->table_id, &msg) == EMBTIER_OK);
    FUZZ_CHECK(catalog_fold(catalog, &msg) == EMBTIER_OK);
}

static void read_catalog(const uint8_t *data, size_t bytes)
{
    _cleanup_(catalog_freep) struct catalog *catalog = NULL;
    _cleanup_(freep) char *text = fuzz_text(data, bytes);
    struct err_msg msg = { { 0 } };
    char *journal = strstr(text, SPLIT);

    if (journal) {
        *journal = '\0';
        journal += strlen(SPLIT);
        sum_repair_lines(journal);
        fuzz_put_file(JOURNAL_FILE, journal, bytes - (size_t)(journal - text));
    }
    text = repair_catalog(text);
    fuzz_put_file(CATALOG_FILE, text, strlen(text));
    if (catalog_read(fuzz_folder(), &catalog, &msg) == EMBTIER_OK)
        change(catalog);
    else
        FUZZ_CHECK(msg.text[0]);
}

static void read_identity(const uint8_t *data, size_t bytes)
{
    _cleanup_(store_identity_freep) struct store_identity *identity = NULL;
    _cleanup_(freep) char *text = fuzz_text(data, bytes);
    char *directories[] = { (char *)(uintptr_t)fuzz_folder() };
    struct config config = { .data = { .directories = directories,
                                       .directory_count = 1,
                                       .must_exist = true,
                                       .shards_per_directory = 2 } };
    struct err_msg msg = { { 0 } };

    sum_repair_json(text);
    fuzz_put_file("embtier.json", text, strlen(text));
    if (store_identity_look(&config, &identity, &msg) == EMBTIER_OK)
        FUZZ_CHECK(strlen(store_identity_uuid(identity)) == STORE_UUID_CHARS);
    else
        FUZZ_CHECK(msg.text[0]);
}

static void read_plan_record(const uint8_t *data, size_t bytes)
{
    _cleanup_(plan_record_freep) struct plan_record *record = NULL;
    _cleanup_(freep) char *text = fuzz_text(data, bytes);
    struct err_msg msg = { { 0 } };

    sum_repair_json(text);
    fuzz_put_file(PLAN_RECORD_FILE, text, strlen(text));
    if (plan_record_open(fuzz_folder(), &record, &msg) == EMBTIER_OK)
        (void)plan_record_get(record);
    else
        FUZZ_CHECK(msg.text[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_input input = { .at = data, .left = bytes };

    switch (fuzz_byte(&input) % 4) {
    case 1:
        read_identity(input.at, input.left);
        break;
    case 2:
        read_plan_record(input.at, input.left);
        break;
    default:
        read_catalog(input.at, input.left);
        break;
    }
    return 0;
}
