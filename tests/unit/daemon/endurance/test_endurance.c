/* SPDX-License-Identifier: Apache-2.0 */
/* Are the bytes of each device counted, on a machine that is a folder: through partitions, LVM and
 * RAID, over boots and restarts, and with a tier's file? */
#include "tests/unit/daemon/endurance/machine_fixture.h"

#include <pthread.h>

static void test_a_disk_is_found_through_its_partition(void **state)
{
    struct endurance *endurance;
    const struct endurance_state *now;

    (void)state;
    use_directories("/data/a", "/data/c");
    endurance = begin(NOW);
    write_below(0, 300 * SECTOR);
    write_below(1, 70 * SECTOR);
    put_counter("nvme0n1", 1000 + 400);
    put_counter("nvme3n1", 1000 + 71);
    now = sample(endurance, NOW + 10000);
    assert_int_equal(now->device_count, 2);
    assert_int_equal(device(now, "nvme0n1")->capacity_bytes, 1024000000);
    assert_int_equal(device(now, "nvme0n1")->written_bytes, 400 * SECTOR);
    assert_true(device(now, "nvme0n1")->has_server_bytes);
    assert_int_equal(device(now, "nvme0n1")->server_bytes, 300 * SECTOR);
    assert_int_equal(device(now, "nvme3n1")->server_bytes, 70 * SECTOR);
    assert_int_equal(device(now, "nvme3n1")->written_bytes, 71 * SECTOR);
    assert_int_equal(now->server.total_bytes, 370 * SECTOR);
    assert_int_equal(now->server.rates[WRITE_HOUR].bytes, 370 * SECTOR);
    assert_int_equal(now->server.rates[WRITE_HOUR].ms, 10000);
    assert_false(now->has_tier_files);
    endurance_free(endurance);
}

/* How RAID shares bytes out depends on its level. */
static void test_the_server_s_part_of_a_disk_of_raid_is_not_known(void **state)
{
    struct endurance *endurance;
    const struct endurance_state *now;

    (void)state;
    use_directories("/data/b", NULL);
    endurance = begin(NOW);
    put_counter("nvme2n1", 1000 + 9);
    now = sample(endurance, NOW + 10000);
    assert_int_equal(now->device_count, 2);
    assert_false(device(now, "nvme1n1")->has_server_bytes);
    assert_false(device(now, "nvme2n1")->has_server_bytes);
    assert_int_equal(device(now, "nvme2n1")->written_bytes, 9 * SECTOR);
    endurance_free(endurance);
}

static void test_memory_has_no_device(void **state)
{
    struct endurance *endurance;
    const struct endurance_state *now;

    (void)state;
    use_directories("/mem", NULL);
    endurance = begin(NOW);
    write_below(0, 5000);
    now = sample(endurance, NOW + 10000);
    assert_int_equal(now->device_count, 0);
    assert_int_equal(now->server.total_bytes, 5000);
    endurance_free(endurance);
}

/* ---- Tiers ---- */

static void test_a_tier_s_file_costs_what_the_kernel_says(void **state)
{
    struct endurance *endurance;
    const struct endurance_state *now;

    (void)state;
    use_directories("/data/a", NULL);
    use_tier(0, "/data/c");
    endurance = begin(NOW);
    write_below(0, 40000);
    put_io(140000, 0, 0);
    now = sample(endurance, NOW + 10000);
    assert_true(now->has_tier_files);
    assert_int_equal(now->tier_file_bytes, 100000);
    assert_int_equal(now->server.total_bytes, 140000);
    assert_int_equal(device(now, "nvme0n1")->server_bytes, 40000);
    assert_int_equal(device(now, "nvme3n1")->server_bytes, 100000);
    write_below(0, 1000); /* not written yet */
    now = sample(endurance, NOW + 20000);
    assert_int_equal(now->tier_file_bytes, 100000); /* a counter never falls */
    endurance_free(endurance);
}

/* A tier that grew is dirty as a whole. It shrinks again before the kernel wrote most of it. */
static void test_pages_that_are_dropped_before_they_are_written_cost_nothing(void **state)
{
    const uint64_t mib = UINT64_C(1) << 20;
    uint64_t dirtied = 0, dropped = 0, written = 0;
    struct endurance *endurance;
    const struct endurance_state *now;

    (void)state;
    use_directories("/data/a", NULL);
    use_tier(0, "/data/c");
    endurance = begin(NOW);
    for (uint64_t turn = 0; turn < 3; turn++) {
        dirtied += 1500 * mib;
        put_io(dirtied, dropped, (dirtied - dropped - written) / 1024);
        now = sample(endurance, NOW + turn * 10000 + 3000);
        assert_int_equal(now->tier_file_bytes, written);
        written += 100 * mib;
        dropped += 1400 * mib;
        put_io(dirtied, dropped, 0);
        now = sample(endurance, NOW + turn * 10000 + 6000);
        assert_int_equal(now->tier_file_bytes, written);
        assert_int_equal(device(now, "nvme3n1")->server_bytes, written);
        assert_int_equal(now->server.total_bytes, written);
    }
    endurance_free(endurance);
}

/* Other programs may keep the page cache dirty for ever. */
static void test_pages_that_were_not_dropped_for_a_while_are_written(void **state)
{
    const uint64_t others_kib = UINT64_C(1) << 30;
    struct endurance *endurance;
    const struct endurance_state *now;
    uint64_t second = 0;

    (void)state;
    use_directories("/data/a", NULL);
    use_tier(0, "/data/c");
    endurance = begin(NOW);
    put_io(140000, 0, others_kib);
    for (; second < 35; second++)
        assert_int_equal(sample(endurance, NOW + second * 1000)->tier_file_bytes, 0);
    put_io(140000, 40000, others_kib); /* these were dropped in time */
    for (; second < 50; second++)
        now = sample(endurance, NOW + second * 1000);
    assert_int_equal(now->tier_file_bytes, 100000);
    endurance_free(endurance);
}

static void test_files_in_memory_of_any_kind_cost_nothing(void **state)
{
    static const char *const tiers[] = { "/pmem", "/mem", "/missing" };

    (void)state;
    use_directories("/data/a", NULL);
    for (size_t i = 0; i < ARRAY_LEN(tiers); i++) {
        struct endurance *endurance;
        const struct endurance_state *now;

        use_tier(0, tiers[i]);
        endurance = begin(NOW);
        put_io(140000, 0, 0);
        now = sample(endurance, NOW + 10000);
        assert_false(now->has_tier_files);
        assert_int_equal(now->server.total_bytes, 0);
        endurance_free(endurance);
    }
}

static void test_files_of_tiers_on_two_devices_are_known_together_only(void **state)
{
    struct endurance *endurance;
    const struct endurance_state *now;

    (void)state;
    use_directories("/data/a", NULL);
    use_tier(0, "/data/a");
    use_tier(1, "/data/c");
    endurance = begin(NOW);
    put_io(8192, 0, 0);
    now = sample(endurance, NOW + 10000);
    assert_int_equal(now->tier_file_bytes, 8192);
    assert_false(device(now, "nvme0n1")->has_server_bytes);
    assert_false(device(now, "nvme3n1")->has_server_bytes);
    endurance_free(endurance);
}

static void test_a_tier_s_bytes_that_the_kernel_hides_are_not_known(void **state)
{
    struct endurance *endurance;
    const struct endurance_state *now;
    char path[PATH_MAX];

    (void)state;
    use_directories("/data/a", NULL);
    use_tier(0, "/data/c");
    root_path("/proc/self/io", path);
    assert_int_equal(unlink(path), 0);
    endurance = begin(NOW);
    now = sample(endurance, NOW + 10000);
    assert_false(now->has_tier_files);
    assert_true(device(now, "nvme0n1")->has_server_bytes);
    assert_false(device(now, "nvme3n1")->has_server_bytes);
    endurance_free(endurance);
}

/* Writes while the file of the process is being read, which is read once more then. */
static void *write_meanwhile(void *path)
{
    FILE *const file = fopen(path, "we"); /* waits for the reader */

    assert_non_null(file);
    assert_int_equal(unlink(path), 0);
    put_io(5000, 0, 0);
    write_below(0, 5000);
    assert_true(fputs("write_bytes: 5000\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
    return NULL;
}

/* They are the server's own, and a tier's bytes never shrink again. */
static void test_bytes_written_during_a_sample_are_no_tier_s(void **state)
{
    struct endurance *endurance;
    const struct endurance_state *now;
    pthread_t writer;
    char path[PATH_MAX];

    (void)state;
    use_directories("/data/a", NULL);
    use_tier(0, "/data/c");
    endurance = begin(NOW);
    root_path("/proc/self/io", path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(pthread_create(&writer, NULL, write_meanwhile, path), 0);
    now = sample(endurance, NOW + 10000);
    assert_int_equal(pthread_join(writer, NULL), 0);
    assert_int_equal(now->server.total_bytes, 5000);
    assert_int_equal(now->tier_file_bytes, 0);
    endurance_free(endurance);
}

/* ---- Restarts ---- */

/* Ends, and begins anew. */
static struct endurance *restart(struct endurance *endurance, uint64_t now_ms)
{
    struct err_msg msg = { { 0 } };

    assert_int_equal(endurance_save(endurance, &msg), EMBTIER_OK);
    endurance_free(endurance);
    written_begin(directories, config.data.directory_count);
    return begin(now_ms);
}

static void test_a_restart_keeps_the_history_and_what_was_written_meanwhile(void **state)
{
    struct endurance *endurance;
    const struct endurance_state *now;

    (void)state;
    use_directories("/data/a", NULL);
    endurance = begin(NOW);
    write_below(0, 10 * SECTOR);
    put_counter("nvme0n1", 1100);
    (void)sample(endurance, NOW + 10000);
    put_counter("nvme0n1", 1100 + 50); /* no sample sees it */
    endurance = restart(endurance, NOW + 2 * HOUR);
    write_below(0, 3 * SECTOR);
    put_counter("nvme0n1", 1100 + 50 + 7);
    now = sample(endurance, NOW + 2 * HOUR + 10000);
    assert_int_equal(device(now, "nvme0n1")->written_bytes, 7 * SECTOR);
    assert_int_equal(device(now, "nvme0n1")->history.total_bytes, 157 * SECTOR);
    assert_int_equal(device(now, "nvme0n1")->history.age_ms, 2 * HOUR + 10000);
    /* Half of the time without a server, and what was written since. */
    assert_in_range(device(now, "nvme0n1")->history.rates[WRITE_HOUR].bytes, 31 * SECTOR,
                    33 * SECTOR);
    assert_int_equal(device(now, "nvme0n1")->history.rates[WRITE_DAY].bytes, 157 * SECTOR);
    assert_int_equal(now->server.total_bytes, 13 * SECTOR);
    endurance_free(endurance);
}

static void test_a_boot_begins_counters_at_zero(void **state)
{
    struct endurance *endurance;
    const struct endurance_state *now;

    (void)state;
    use_directories("/data/a", NULL);
    endurance = begin(NOW);
    put_counter("nvme0n1", 1100);
    (void)sample(endurance, NOW + 10000);
    put("/proc/sys/kernel/random/boot_id", "boot-2\n");
    put_counter("nvme0n1", 2000); /* since that boot */
    endurance = restart(endurance, NOW + HOUR);
    now = sample(endurance, NOW + HOUR);
    assert_int_equal(device(now, "nvme0n1")->history.total_bytes, 2100 * SECTOR);
    assert_int_equal(device(now, "nvme0n1")->written_bytes, 0);
    endurance_free(endurance);
}

/* A machine that was off for days, and on for the last hour. */
static void test_bytes_of_a_new_boot_are_of_the_time_since(void **state)
{
    struct endurance *endurance;
    const struct endurance_state *now;
    char text[64];

    (void)state;
    use_directories("/data/a", NULL);
    endurance = begin(NOW);
    put("/proc/sys/kernel/random/boot_id", "boot-2\n");
    snprintf(text, sizeof(text), "cpu  1 2 3\nbtime %llu\n",
             (unsigned long long)(NOW + 95 * HOUR) / 1000);
    put("/proc/stat", text);
    put_counter("nvme0n1", 1000);
    endurance = restart(endurance, NOW + 96 * HOUR);
    now = sample(endurance, NOW + 96 * HOUR);
    assert_int_equal(device(now, "nvme0n1")->history.rates[WRITE_DAY].bytes, 1000 * SECTOR);
    assert_in_range(device(now, "nvme0n1")->history.rates[WRITE_HOUR].bytes, 980 * SECTOR,
                    1000 * SECTOR);
    endurance_free(endurance);
}

/* A day's bytes that nobody saw being written are not the last hour's. */
static void test_bytes_of_a_time_without_a_server_raise_no_warning(void **state)
{
    struct endurance *endurance;
    const struct endurance_state *now;

    (void)state;
    use_directories("/data/a", NULL);
    config.endurance.max_dwpd = 0.5;
    endurance = begin(NOW);
    (void)sample(endurance, NOW + 10000);
    put_counter("nvme0n1", 1000 + 8 * 500000); /* 0.25 a day */
    endurance = restart(endurance, NOW + 8 * 24 * HOUR);
    now = sample(endurance, NOW + 8 * 24 * HOUR);
    assert_false(device(now, "nvme0n1")->is_over);
    endurance_free(endurance);
}

static void test_a_history_is_saved_every_five_minutes(void **state)
{
    struct endurance *endurance;
    const struct endurance_state *now;

    (void)state;
    use_directories("/data/a", NULL);
    endurance = begin(NOW);
    put_counter("nvme0n1", 1100);
    (void)sample(endurance, NOW + HOUR / 12); /* saves */
    put_counter("nvme0n1", 1130);
    (void)sample(endurance, NOW + HOUR / 6 - 1);
    endurance_free(endurance); /* as a crash */
    put("/proc/sys/kernel/random/boot_id", "boot-2\n");
    put_counter("nvme0n1", 0);
    endurance = begin(NOW + HOUR);
    now = sample(endurance, NOW + HOUR);
    assert_int_equal(device(now, "nvme0n1")->history.total_bytes, 100 * SECTOR);
    endurance_free(endurance);
}

static void test_a_history_that_could_not_be_read_is_not_written_over(void **state)
{
    struct endurance *endurance;
    char path[PATH_MAX];
    struct stat info;

    (void)state;
    use_directories("/data/a", NULL);
    put_link("/store/endurance.json", "endurance.json"); /* a loop */
    endurance = begin(NOW);
    (void)sample(endurance, NOW + HOUR);
    endurance_end(endurance);
    endurance_free(endurance);
    root_path("/store/endurance.json", path);
    assert_int_equal(lstat(path, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
}

/* ---- Identity ---- */

/* Names may change with a boot; the id of a device does not. */
static void test_a_device_keeps_its_history_under_another_name(void **state)
{
    struct endurance *endurance;
    const struct endurance_state *now;

    (void)state;
    use_directories("/data/a", NULL);
    endurance = begin(NOW);
    put_counter("nvme0n1", 1100);
    (void)sample(endurance, NOW + 10000);
    use_directories("/data/c", NULL);
    put("/sys/devices/block/nvme3n1/wwid", "eui.0001\n");
    put_counter("nvme3n1", 1200);
    endurance = restart(endurance, NOW + HOUR);
    now = sample(endurance, NOW + HOUR);
    assert_int_equal(device(now, "nvme3n1")->history.total_bytes, 200 * SECTOR);
    endurance_free(endurance);
}

/* Ends, and begins with the other directory, whose device is the same drive if its history goes on.
 */
static uint64_t history_after_a_new_name(const char *file, const char *text, bool with_model)
{
    struct endurance *endurance;
    const struct endurance_state *now;
    char path[96];

    use_directories("/data/a", NULL);
    endurance = begin(NOW);
    put_counter("nvme0n1", 1100);
    (void)sample(endurance, NOW + 10000);
    use_directories("/data/c", NULL);
    snprintf(path, sizeof(path), "/sys/devices/block/nvme3n1/%s", file);
    put(path, text);
    if (with_model)
        put("/sys/devices/block/nvme3n1/device/model", "DISK 5\n");
    put_counter("nvme3n1", 1200);
    endurance = restart(endurance, NOW + HOUR);
    now = sample(endurance, NOW + HOUR);
    endurance_free(endurance);
    return device(now, "nvme3n1")->history.total_bytes;
}

static void forget_wwid(void)
{
    char path[PATH_MAX];

    root_path("/sys/devices/block/nvme0n1/wwid", path);
    assert_int_equal(unlink(path), 0);
}

static void test_a_drive_of_sata_has_a_wide_name_too(void **state)
{
    (void)state;
    forget_wwid();
    put("/sys/devices/block/nvme0n1/device/wwid", "t10.ATA     DISK   S3Z9  \n");
    assert_int_equal(history_after_a_new_name("device/wwid", "t10.ATA     DISK   S3Z9  \n", false),
                     200 * SECTOR);
}

static void test_a_serial_number_is_an_identity(void **state)
{
    (void)state;
    forget_wwid();
    put("/sys/devices/block/nvme0n1/device/model", "DISK 5          \n");
    put("/sys/devices/block/nvme0n1/device/serial", "  S3Z9\n");
    assert_int_equal(history_after_a_new_name("device/serial", "S3Z9\n", true), 200 * SECTOR);
}

static void test_another_serial_number_is_another_drive(void **state)
{
    (void)state;
    forget_wwid();
    put("/sys/devices/block/nvme0n1/serial", "disk-1\n"); /* as virtio has it */
    assert_int_equal(history_after_a_new_name("serial", "disk-2\n", false), 0);
}

/* Some makers give all drives one id. */
static void test_drives_with_one_id_have_two_histories(void **state)
{
    struct endurance *endurance;
    const struct endurance_state *now;

    (void)state;
    put("/sys/devices/block/nvme3n1/wwid", "eui.0001\n");
    for (uint32_t with_serials = 0; with_serials < 2; with_serials++) {
        if (with_serials) {
            put("/sys/devices/block/nvme0n1/device/serial", "A\n");
            put("/sys/devices/block/nvme3n1/device/serial", "B\n");
        }
        use_directories("/data/a", "/data/c");
        put_counter("nvme0n1", 1000);
        put_counter("nvme3n1", 1000);
        endurance = begin(NOW);
        put_counter("nvme0n1", 1100);
        put_counter("nvme3n1", 1007);
        (void)sample(endurance, NOW + 10000);
        endurance = restart(endurance, NOW + 20000);
        now = sample(endurance, NOW + 20000);
        assert_int_equal(device(now, "nvme0n1")->history.total_bytes, 100 * SECTOR);
        assert_int_equal(device(now, "nvme3n1")->history.total_bytes, 7 * SECTOR);
        endurance_free(endurance);
    }
}

/* ---- Counters ---- */

/* Without statistics the counter stands still, which is not "nothing was written". */
static void test_a_device_that_the_kernel_does_not_count_is_not_known(void **state)
{
    struct endurance *endurance;
    const struct endurance_state *now;

    (void)state;
    use_directories("/data/a", NULL);
    put("/sys/devices/block/nvme0n1/queue/iostats", "1\n");
    endurance = begin(NOW);
    put_counter("nvme0n1", 1100);
    now = sample(endurance, NOW + 60000);
    assert_true(device(now, "nvme0n1")->is_counted);
    assert_int_equal(device(now, "nvme0n1")->written_bytes, 100 * SECTOR);
    put("/sys/devices/block/nvme0n1/queue/iostats", "0\n");
    write_below(0, 77 * SECTOR);
    now = sample(endurance, NOW + 120000);
    assert_int_equal(now->device_count, 1);
    assert_false(device(now, "nvme0n1")->is_counted);
    put("/sys/devices/block/nvme0n1/queue/iostats", "1\n");
    put_counter("nvme0n1", 1102);
    (void)sample(endurance, NOW + 180000);
    write_below(0, 3 * SECTOR);
    put_counter("nvme0n1", 1106);
    now = sample(endurance, NOW + 190000);
    assert_true(device(now, "nvme0n1")->is_counted);
    assert_int_equal(device(now, "nvme0n1")->written_bytes, 4 * SECTOR); /* since it counts */
    assert_int_equal(device(now, "nvme0n1")->server_bytes, 3 * SECTOR);
    assert_int_equal(device(now, "nvme0n1")->history.age_ms, 10000);
    assert_false(device(now, "nvme0n1")->history.has_rates);
    endurance_free(endurance);
}

static void test_a_damaged_counter_is_not_believed(void **state)
{
    static const char *const texts[] = { "", "1 2 3 4 5 6\n", "1 2 3 4 5 6 x 8\n",
                                         "1 2 3 4 5 6 99999999999999999999 8\n",
                                         "1 2 3 4 5 6 18446744073709551615 8\n" };
    struct endurance *endurance;
    const struct endurance_state *now;

    (void)state;
    use_directories("/data/a", NULL);
    endurance = begin(NOW);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        put("/sys/devices/block/nvme0n1/stat", texts[i]);
        now = sample(endurance, NOW + 10000);
        assert_int_equal(device(now, "nvme0n1")->written_bytes, 0);
    }
    put_counter("nvme0n1", 1005);
    now = sample(endurance, NOW + 20000);
    assert_int_equal(device(now, "nvme0n1")->written_bytes, 5 * SECTOR);
    endurance_free(endurance);
}

static void test_rates_of_a_young_history_are_not_known(void **state)
{
    struct endurance *endurance;
    const struct endurance_state *now;

    (void)state;
    use_directories("/data/a", NULL);
    endurance = begin(NOW);
    now = sample(endurance, NOW + HOUR - 1000);
    assert_false(now->server.has_rates);
    assert_false(device(now, "nvme0n1")->history.has_rates);
    now = sample(endurance, NOW + HOUR);
    assert_true(now->server.has_rates);
    assert_true(device(now, "nvme0n1")->history.has_rates);
    endurance_free(endurance);
}

static void test_a_directory_counts_for_the_longest_path_that_holds_it(void **state)
{
    (void)state;
    use_directories("/data/a", "/data/a/inner/");
    write_below(0, 1);
    write_below(1, 20);
    written_add(written_place("/data/ab/file"), 300);
    written_add(written_place("/elsewhere"), 4000);
    assert_int_equal(written_below(0), 1);
    assert_int_equal(written_below(1), 20);
    use_directories("/data/a", NULL);
    assert_int_equal(written_below(0), 0);
    written_add(written_place("/another/name/of/it"), 7);
    assert_int_equal(written_below(0), 7);
}

/* ---- Directories that are added and removed ---- */

/* Numbers of bytes that were written do not run out. */
static void test_a_directory_may_come_and_go_without_end(void **state)
{
    (void)state;
    use_directories("/data/a", NULL);
    for (uint32_t i = 0; i < 2 * CONFIG_DIRECTORIES_MAX; i++) {
        const uint64_t last = MIN(i + 1, CONFIG_DIRECTORIES_MAX - 1u);
        uint64_t before;

        written_add_directory("/data/c");
        assert_int_equal(written_directory_count(), last + 1);
        assert_false(written_has_left((uint32_t)last));
        before = written_below((uint32_t)last);
        written_add(written_place("/data/c/file"), 3);
        assert_int_equal(written_below((uint32_t)last), before + 3);
        written_leave_directory("/data/c");
        assert_true(written_has_left((uint32_t)last));
    }
}

static void test_an_added_directory_counts_from_then_on(void **state)
{
    struct endurance *endurance;
    const struct endurance_state *now;

    (void)state;
    use_directories("/data/a", NULL);
    endurance = begin(NOW);
    write_below(0, 5 * SECTOR);
    put_counter("nvme3n1", 1100);
    assert_int_equal(sample(endurance, NOW + 1000)->device_count, 1);
    directories[1] = (char *)(uintptr_t) "/data/c";
    directories[2] = (char *)(uintptr_t) "/data/a/2";
    written_add_directory(directories[1]);
    written_add_directory(directories[2]);
    written_add_directory(directories[2]); /* an addition that failed is done again */
    now = sample(endurance, NOW + 2000);
    assert_int_equal(now->device_count, 2);
    assert_int_equal(device(now, "nvme3n1")->written_bytes, 0);
    write_below(1, 70 * SECTOR);
    write_below(2, 8 * SECTOR);
    put_counter("nvme3n1", 1171);
    put_counter("nvme0n1", 1014);
    now = sample(endurance, NOW + 3000);
    assert_int_equal(now->device_count, 2);
    assert_int_equal(device(now, "nvme3n1")->written_bytes, 71 * SECTOR);
    assert_int_equal(device(now, "nvme3n1")->server_bytes, 70 * SECTOR);
    assert_int_equal(device(now, "nvme3n1")->history.age_ms, 1000);
    assert_int_equal(device(now, "nvme0n1")->written_bytes, 14 * SECTOR);
    assert_int_equal(device(now, "nvme0n1")->server_bytes, 13 * SECTOR);
    assert_int_equal(now->server.total_bytes, 83 * SECTOR);
    endurance_free(endurance);
}

static void test_a_limit_holds_for_an_added_directory_and_not_for_a_removed_one(void **state)
{
    struct endurance *endurance;
    const struct endurance_state *now;

    (void)state;
    held = 0;
    config.endurance.max_dwpd = 0.5;
    use_directories("/data/a", NULL);
    endurance = begin(NOW);
    directories[1] = (char *)(uintptr_t) "/data/c";
    config.data.directory_count = 2; /* for hold() alone */
    written_add_directory(directories[1]);
    (void)sample(endurance, NOW + 1000);
    put_counter("nvme3n1", 1000 + 1900000);
    now = sample(endurance, NOW + 2 * HOUR);
    assert_true(device(now, "nvme3n1")->is_held);
    assert_int_equal(held, 2);
    written_leave_directory(directories[1]);
    write_below(1, 3 * SECTOR); /* the server has files open there */
    put_counter("nvme3n1", 1000 + 3800000);
    now = sample(endurance, NOW + 3 * HOUR);
    assert_int_equal(held, 0);
    assert_int_equal(now->device_count, 1);
    assert_int_equal(now->server.total_bytes, 3 * SECTOR);
    written_add_directory(directories[0]); /* of the same text: nothing changes */
    assert_int_equal(sample(endurance, NOW + 4 * HOUR)->device_count, 1);
    written_add_directory(directories[1]);
    write_below(1, 5 * SECTOR);
    put_counter("nvme3n1", 1000 + 3800000 + 5);
    now = sample(endurance, NOW + 5 * HOUR);
    assert_int_equal(now->device_count, 2);
    assert_int_equal(device(now, "nvme3n1")->server_bytes, 8 * SECTOR);
    assert_int_equal(now->server.total_bytes, 8 * SECTOR);
    written_leave_directory(directories[1]);
    assert_int_equal(sample(endurance, NOW + 6 * HOUR)->device_count, 1);
    endurance_free(endurance);
}

/* Makers give the same world-wide name to several drives. */
static void test_an_added_drive_with_the_same_id_takes_no_history_of_another(void **state)
{
    struct endurance *endurance;
    const struct endurance_state *now;

    (void)state;
    put("/sys/devices/block/nvme3n1/wwid", "eui.0001\n");
    use_directories("/data/a", NULL);
    endurance = begin(NOW);
    put_counter("nvme0n1", 1100);
    (void)sample(endurance, NOW + 1000);
    directories[1] = (char *)(uintptr_t) "/data/c";
    config.data.directory_count = 2;
    written_add_directory(directories[1]);
    (void)sample(endurance, NOW + 2000);
    endurance = restart(endurance, NOW + 3000);
    now = sample(endurance, NOW + 4000);
    assert_int_equal(device(now, "nvme0n1")->history.total_bytes, 100 * SECTOR);
    assert_int_equal(device(now, "nvme0n1")->history.age_ms, 4000);
    assert_int_equal(device(now, "nvme3n1")->history.total_bytes, 0);
    assert_int_equal(device(now, "nvme3n1")->history.age_ms, 2000);
    endurance_free(endurance);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(test_a_directory_may_come_and_go_without_end),
        TEST(test_a_disk_is_found_through_its_partition),
        TEST(test_the_server_s_part_of_a_disk_of_raid_is_not_known),
        TEST(test_memory_has_no_device),
        TEST(test_a_tier_s_file_costs_what_the_kernel_says),
        TEST(test_pages_that_are_dropped_before_they_are_written_cost_nothing),
        TEST(test_pages_that_were_not_dropped_for_a_while_are_written),
        TEST(test_files_in_memory_of_any_kind_cost_nothing),
        TEST(test_files_of_tiers_on_two_devices_are_known_together_only),
        TEST(test_a_tier_s_bytes_that_the_kernel_hides_are_not_known),
        TEST(test_a_restart_keeps_the_history_and_what_was_written_meanwhile),
        TEST(test_a_boot_begins_counters_at_zero),
        TEST(test_a_device_keeps_its_history_under_another_name),
        TEST(test_bytes_written_during_a_sample_are_no_tier_s),
        TEST(test_bytes_of_a_new_boot_are_of_the_time_since),
        TEST(test_bytes_of_a_time_without_a_server_raise_no_warning),
        TEST(test_a_history_is_saved_every_five_minutes),
        TEST(test_a_history_that_could_not_be_read_is_not_written_over),
        TEST(test_a_drive_of_sata_has_a_wide_name_too),
        TEST(test_a_serial_number_is_an_identity),
        TEST(test_another_serial_number_is_another_drive),
        TEST(test_drives_with_one_id_have_two_histories),
        TEST(test_a_device_that_the_kernel_does_not_count_is_not_known),
        TEST(test_rates_of_a_young_history_are_not_known),
        TEST(test_a_damaged_counter_is_not_believed),
        TEST(test_an_added_directory_counts_from_then_on),
        TEST(test_a_limit_holds_for_an_added_directory_and_not_for_a_removed_one),
        TEST(test_an_added_drive_with_the_same_id_takes_no_history_of_another),
        TEST(test_a_directory_counts_for_the_longest_path_that_holds_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
