/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a client can use its shared memory only as intended. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "daemon/engine/sessions/latencies.h"
#include "daemon/transport/shm/shm_channel.h"

static struct shm_channel *make(uint64_t arena_bytes, uint32_t slots)
{
    struct shm_channel *shm = NULL;
    struct err_msg msg = { { 0 } };

    if (shm_channel_new(arena_bytes, slots, 1000, &shm, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    return shm;
}

static void test_control_memory_can_be_read_but_not_written_by_others(void **state)
{
    struct shm_channel *shm = make(MIB, 64);
    const struct shm_control *seen;

    (void)state;
    assert_ptr_equal(
        mmap(NULL, shm->control_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shm->control_fd, 0),
        MAP_FAILED);
    assert_int_equal(pwrite(shm->control_fd, "x", 1, 0), -1);
    assert_int_equal(ftruncate(shm->control_fd, 0), -1);
    seen = mmap(NULL, shm->control_bytes, PROT_READ, MAP_SHARED, shm->control_fd, 0);
    assert_ptr_not_equal(seen, MAP_FAILED);
    assert_int_equal(seen->magic, SHM_MAGIC);
    assert_int_equal(seen->slot_count, 64);
    assert_int_equal(seen->max_batch_rows, 1000);
    assert_int_equal(shm_lane_is_asleep(seen), 1);
    shm->base.channel.ops->hang_up(&shm->base.channel, EMBTIER_SHUTDOWN); /* the server still can */
    assert_int_equal(seen->closed, EMBTIER_SHUTDOWN);
    munmap((void *)(uintptr_t)seen, shm->control_bytes);
    shm_channel_free(shm);
}

/* If a client could cut it short, the daemon would die of SIGBUS. */
static void test_arena_cannot_be_resized(void **state)
{
    struct shm_channel *shm = make(MIB, 64);

    (void)state;
    assert_int_equal(ftruncate(shm->arena_fd, 4096), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(shm->arena_fd, 2 * MIB), -1);
    shm_channel_free(shm);
}

static void test_more_slots_than_usual_count(void **state)
{
    const uint64_t more = (OP_SLOTS_MAX - OP_SLOTS_DEFAULT) *
                          (uint64_t)(sizeof(struct op_completion) + sizeof(struct request_time));

    (void)state;
    assert_int_equal(shm_channel_counted_bytes(MIB, 1), MIB);
    assert_int_equal(shm_channel_counted_bytes(MIB, OP_SLOTS_DEFAULT), MIB);
    assert_int_equal(shm_channel_counted_bytes(MIB, OP_SLOTS_MAX), MIB + more);
}

static void test_submissions_lie_in_the_smallest_arena(void **state)
{
    (void)state;
    for (uint32_t slots = 1; slots <= OP_SLOTS_MAX; slots *= 4) {
        struct shm_channel *shm = make(1, slots);
        struct stat status;

        assert_true(shm_arena_payload_offset(slots) < shm->arena_bytes);
        assert_int_equal(fstat(shm->arena_fd, &status), 0);
        assert_int_equal(status.st_size, shm->arena_bytes);
        assert_int_equal(shm->control->arena_bytes, shm->arena_bytes);
        memset(&shm_submissions(shm->arena)[slots - 1], 1, sizeof(struct op_submission));
        shm_channel_free(shm);
    }
}

static void test_arena_that_cannot_be_had_is_an_error(void **state)
{
    struct shm_channel *shm = NULL;
    struct err_msg msg = { { 0 } };

    (void)state;
    assert_int_not_equal(shm_channel_new(UINT64_C(1) << 63, 64, 1000, &shm, &msg), EMBTIER_OK);
    assert_true(msg.text[0] != '\0');
    assert_null(shm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_control_memory_can_be_read_but_not_written_by_others),
        cmocka_unit_test(test_arena_cannot_be_resized),
        cmocka_unit_test(test_more_slots_than_usual_count),
        cmocka_unit_test(test_submissions_lie_in_the_smallest_arena),
        cmocka_unit_test(test_arena_that_cannot_be_had_is_an_error),
    };

    return cmocka_run_group_tests_name("shm_channel", tests, NULL, NULL);
}
