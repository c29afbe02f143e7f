/* SPDX-License-Identifier: Apache-2.0 */
/* Records that a server keeps beside its rows: the list of data directories
 * (store/members/members.h), the order of a move of buckets (store/resharding/reshard_record.h),
 * and histories of bytes written for tables and for devices (daemon/endurance/). The first byte
 * chooses. A record that is read can be written, and is then read as the same. */
#include "tests/fuzz/lib/sums.h"

#include "base/log/log.h"
#include "daemon/endurance/table_histories.h"
#include "daemon/endurance/write_histories.h"
#include "store/members/members.h"
#include "store/resharding/reshard_record.h"

#define TABLES  4                          /* that get more bytes; the file may have others */
#define NOW_MS  (UINT64_C(20000) * DAY_MS) /* a day of 2024, from which the seeds are */
#define DAMAGED ".damaged"

/* ---- Data directories ---- */

static void check_members(const struct members *members)
{
    _cleanup_(members_clear) struct members again = { 0 }, copy = { 0 };
    char *directories[] = { (char *)(uintptr_t)fuzz_folder() };
    struct err_msg msg = { { 0 } };

    FUZZ_CHECK(members_have(members, 0) && members_count(members) <= members->given);
    FUZZ_CHECK(members_copy(members, &copy, &msg) == EMBTIER_OK);
    FUZZ_CHECK(members_write(fuzz_folder(), &copy, &msg) == EMBTIER_OK);
    FUZZ_CHECK(members_find(directories, 1, &again, &msg) == EMBTIER_OK);
    FUZZ_CHECK(again.generation == members->generation && again.given == members->given);
    FUZZ_CHECK(strcmp(again.uuid, members->uuid) == 0);
    for (uint32_t i = 0; i < members->given; i++) {
        FUZZ_CHECK(strcmp(again.paths[i], members->paths[i]) == 0);
        FUZZ_CHECK(again.has_left[i] == members->has_left[i]);
        FUZZ_CHECK(!again.names[i] == !members->names[i]);
        FUZZ_CHECK(!again.names[i] || strcmp(again.names[i], members->names[i]) == 0);
    }
}

static void read_members(void)
{
    _cleanup_(members_clear) struct members members = { 0 };
    struct err_msg msg = { { 0 } };

    if (members_read(fuzz_folder(), &members, &msg) == EMBTIER_OK)
        check_members(&members);
    else
        FUZZ_CHECK(msg.text[0] && members.generation == 0);
}

/* ---- An order ---- */

static void read_order(void)
{
    static struct reshard_record record, again;
    struct err_msg msg = { { 0 } };

    if (reshard_record_read(fuzz_folder(), &record, &msg) != EMBTIER_OK) {
        FUZZ_CHECK(msg.text[0]);
        return;
    }
    FUZZ_CHECK(record.shards > 0);
    FUZZ_CHECK(reshard_record_write(fuzz_folder(), &record, &msg) == EMBTIER_OK);
    FUZZ_CHECK(reshard_record_read(fuzz_folder(), &again, &msg) == EMBTIER_OK);
    FUZZ_CHECK(again.shards == record.shards && again.rate_bytes == record.rate_bytes &&
               again.order == record.order && strcmp(again.directory, record.directory) == 0 &&
               again.deletes_checkpoints == record.deletes_checkpoints);
}

/* ---- Histories ---- */

/* Returns and forgets that a damaged file was put aside. */
static bool was_damaged(const char *name)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s" DAMAGED, fuzz_folder(), name);
    return unlink(path) == 0;
}

/* A round in which each of some tables has got more bytes, which are all that the server wrote. */
static void add_round(struct table_histories *histories, uint64_t now_ms)
{
    struct table_bytes tables[TABLES] = { 0 };

    for (uint32_t i = 0; i < TABLES; i++)
        tables[i] = (struct table_bytes){ .table_id = i + 1, .uuid = "a table", .bytes = 1000 };
    table_histories_begin(histories);
    table_histories_add(histories, tables, TABLES, now_ms);
    table_histories_end(histories, UINT64_C(1000) * TABLES, false, now_ms);
}

static bool is_same(const struct table_history *one, const struct table_history *other)
{
    return memcmp(one, other, sizeof(*one)) == 0;
}

static void check_table(struct table_histories *histories, struct table_histories *again,
                        uint32_t table_id, uint64_t now_ms)
{
    struct table_history one, other;

    FUZZ_CHECK(table_histories_get(histories, table_id, &one));
    FUZZ_CHECK(table_histories_get(again, table_id, &other));
    FUZZ_CHECK(is_same(&one, &other));
    for (enum write_window window = 0; window < WRITE_WINDOWS; window++)
        (void)table_history_rate(&one, window, now_ms);
}

static void read_tables(uint64_t now_ms)
{
    _cleanup_(table_histories_freep) struct table_histories *histories = NULL, *again = NULL;
    struct table_history one, other;
    struct err_msg msg = { { 0 } };

    FUZZ_CHECK(table_histories_new(fuzz_folder(), now_ms, &histories) == EMBTIER_OK);
    (void)was_damaged(TABLE_HISTORIES_FILE);
    add_round(histories, now_ms);
    FUZZ_CHECK(table_histories_save(histories, &msg) == EMBTIER_OK);
    FUZZ_CHECK(table_histories_new(fuzz_folder(), now_ms, &again) == EMBTIER_OK);
    FUZZ_CHECK(!was_damaged(TABLE_HISTORIES_FILE));
    for (uint32_t i = 0; i < TABLES; i++)
        check_table(histories, again, i + 1, now_ms);
    table_histories_shared(histories, &one);
    table_histories_shared(again, &other);
    FUZZ_CHECK(is_same(&one, &other));
}

static void read_devices(uint64_t now_ms)
{
    static struct write_histories histories, again;
    static const struct host_line server = { "server" };
    struct err_msg msg = { { 0 } };
    struct named_history *item;
    bool is_new;

    FUZZ_CHECK(write_histories_load(fuzz_folder(), now_ms, &histories));
    (void)was_damaged(WRITE_HISTORIES_FILE);
    item = write_histories_get(&histories, &server, now_ms, &is_new);
    write_history_add(&item->history, now_ms, 1000);
    for (enum write_window window = 0; window < WRITE_WINDOWS; window++)
        (void)write_history_rate(&item->history, window, now_ms);
    FUZZ_CHECK(write_histories_save(&histories, fuzz_folder(), &msg) == EMBTIER_OK);
    FUZZ_CHECK(write_histories_load(fuzz_folder(), now_ms, &again));
    FUZZ_CHECK(!was_damaged(WRITE_HISTORIES_FILE));
    FUZZ_CHECK(again.count == MIN(histories.count, (uint32_t)WRITE_HISTORIES_KEPT));
    for (uint32_t i = 0; i < again.count; i++)
        FUZZ_CHECK(strcmp(again.items[i].id.text, histories.items[i].id.text) == 0 &&
                   again.items[i].counter == histories.items[i].counter &&
                   memcmp(&again.items[i].history, &histories.items[i].history,
                          sizeof(struct write_history)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[] = { MEMBERS_FILE, TABLE_HISTORIES_FILE, WRITE_HISTORIES_FILE,
                                         RESHARD_RECORD_FILE };
    struct fuzz_input input = { .at = data, .left = bytes };
    const uint8_t kind = fuzz_byte(&input);
    const uint64_t now_ms = NOW_MS + (uint64_t)(kind / ARRAY_LEN(names)) * HOUR_MS;
    _cleanup_(freep) char *text = fuzz_text(input.at, input.left);

    log_set_level(LOG_LEVEL_ERROR);
    sum_repair_json(text);
    fuzz_put_file(names[kind % ARRAY_LEN(names)], text, strlen(text));
    switch (kind % ARRAY_LEN(names)) {
    case 0:
        read_members();
        break;
    case 1:
        read_tables(now_ms);
        break;
    case 2:
        read_devices(now_ms);
        break;
    default:
        read_order();
        break;
    }
    return 0;
}
