/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that shared memory for one client, however much, leaves others their turns, and that all of
 * it is given back.
 *
 * The test holds the threads when they report a result, so that it knows which orders wait. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "daemon/engine/sessions/session.h"
#include "daemon/transport/session_maker.h"
#include "daemon/transport/shm/shm_channel.h"

#define ONE     1000
#define TWO     1001
#define ALL_MAX 64

struct told {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool held;    /* threads that report must wait */
    bool waiting; /* a thread does */
    struct message *messages[ALL_MAX];
    uint32_t count;
};

static void tell(void *owner, struct message *message)
{
    struct told *const told = owner;

    pthread_mutex_lock(&told->lock);
    assert_true(told->count < ALL_MAX);
    told->messages[told->count++] = message;
    told->waiting = true;
    pthread_cond_broadcast(&told->changed);
    while (told->held)
        pthread_cond_wait(&told->changed, &told->lock);
    told->waiting = false;
    pthread_mutex_unlock(&told->lock);
}

static void hold(struct told *told, bool held)
{
    pthread_mutex_lock(&told->lock);
    told->held = held;
    pthread_cond_broadcast(&told->changed);
    pthread_mutex_unlock(&told->lock);
}

static void await(struct told *told, uint32_t count)
{
    pthread_mutex_lock(&told->lock);
    while (told->count < count || (told->held && !told->waiting))
        pthread_cond_wait(&told->changed, &told->lock);
    pthread_mutex_unlock(&told->lock);
}

static void init_told(struct told *told)
{
    *told = (struct told){ .count = 0 };
    pthread_mutex_init(&told->lock, NULL);
    pthread_cond_init(&told->changed, NULL);
}

static struct session_maker *make(struct told *told)
{
    struct session_maker *maker = NULL;

    init_told(told);
    assert_int_equal(session_maker_new(tell, told, &maker, NULL), EMBTIER_OK);
    return maker;
}

static struct session_order order(uid_t uid, uint64_t bytes)
{
    return (struct session_order){
        .user = uid,
        .id = 7,
        .transport = &shm_transport,
        .spec = { .region_bytes = bytes, .slot_count = 4, .max_batch_rows = 100 },
        .lane_count = 1
    };
}

static struct shm_channel *shm_of(const struct session_order *one)
{
    return CONTAINER_OF(one->channel, struct shm_channel, base);
}

static void free_both(struct session_order *one)
{
    session_free(one->session);
    transport_channel_free(one->channel);
}

static uint64_t blocks_of(int fd)
{
    struct stat status;

    assert_int_equal(fstat(fd, &status), 0);
    return (uint64_t)status.st_blocks * 512;
}

static void test_users_take_turns_and_large_ones_wait_for_small_ones(void **state)
{
    struct told told;
    struct session_maker *const maker = make(&told);
    struct session_order first = order(ONE, MIB);
    struct session_order large[4];
    struct session_order small = order(TWO, MIB);
    struct session_order own = order(ONE, MIB);

    (void)state;
    hold(&told, true);
    session_maker_make(maker, &first);
    await(&told, 1); /* the thread is held: later orders wait */
    for (uint32_t i = 0; i < ARRAY_LEN(large); i++) {
        large[i] = order(ONE, 4 * SESSION_STEP_BYTES);
        session_maker_make(maker, &large[i]);
    }
    session_maker_make(maker, &own);
    session_maker_make(maker, &small);
    hold(&told, false);
    await(&told, 7);
    assert_ptr_equal(told.messages[1], &small.made_message); /* after one step of the others */
    assert_ptr_equal(told.messages[2], &own.made_message);   /* after a step of each */
    for (uint32_t i = 1; i < 7; i++) {
        struct session_order *const one =
            CONTAINER_OF(told.messages[i], struct session_order, made_message);

        assert_int_equal(one->err, EMBTIER_OK);
        assert_int_equal(shm_of(one)->reserved_bytes, shm_of(one)->arena_bytes);
        assert_int_equal(blocks_of(shm_of(one)->arena_fd), shm_of(one)->arena_bytes);
        free_both(one);
    }
    free_both(&first);
    session_maker_free(maker);
}

static void test_one_that_is_given_up_is_made_no_further(void **state)
{
    struct told told;
    struct session_maker *const maker = make(&told);
    struct session_order first = order(ONE, MIB);
    struct session_order waits = order(ONE, 64 * MIB);
    struct session_order other = order(ONE, MIB);

    (void)state;
    hold(&told, true);
    session_maker_make(maker, &first);
    await(&told, 1);
    session_maker_make(maker, &waits);
    session_maker_make(maker, &other);
    session_maker_give_up(&waits);
    hold(&told, false);
    await(&told, 3);
    assert_int_equal(waits.err, EMBTIER_DISCONNECTED);
    assert_null(waits.session);
    assert_int_equal(other.err, EMBTIER_OK);
    free_both(&first);
    free_both(&other);
    session_maker_free(maker);
}

static void test_what_waits_at_the_end_is_told_and_what_is_freed_is(void **state)
{
    struct told told;
    struct session_maker *const maker = make(&told);
    struct session_order first = order(ONE, MIB);
    struct session_order waits = order(ONE, 64 * MIB);

    (void)state;
    session_maker_make(maker, &first);
    await(&told, 1);
    session_maker_release(maker, first.channel, false);
    session_maker_make(maker, &waits);
    session_maker_free(maker);
    assert_int_equal(told.count, 3);
    assert_true(waits.err == EMBTIER_SHUTDOWN || waits.err == EMBTIER_OK);
    assert_int_equal(shm_of(&first)->arena_fd, -1);
    free_both(&first);
    free_both(&waits);
}

static void test_memory_of_a_client_that_has_ended_is_freed_even_if_mapped(void **state)
{
    static const bool is_abandoned[] = { true, false };

    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(is_abandoned); i++) {
        struct told told;
        struct session_maker *const maker = make(&told);
        struct session_order one = order(ONE, MIB);
        int fd;
        uint8_t *seen;

        session_maker_make(maker, &one);
        await(&told, 1);
        fd = dup(shm_of(&one)->arena_fd);
        seen = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_ptr_not_equal(seen, MAP_FAILED);
        seen[MIB / 2] = 7; /* stands for an answer */
        session_maker_release(maker, one.channel, is_abandoned[i]);
        await(&told, 2);
        assert_int_equal(blocks_of(fd), is_abandoned[i] ? 0 : MIB);
        if (!is_abandoned[i])
            assert_int_equal(seen[MIB / 2], 7);
        munmap(seen, MIB);
        close(fd);
        free_both(&one);
        session_maker_free(maker);
    }
}

static void test_memory_that_cannot_be_had_is_told(void **state)
{
    struct told told;
    struct session_maker *const maker = make(&told);
    struct session_order one = order(ONE, UINT64_C(1) << 63);

    (void)state;
    session_maker_make(maker, &one);
    await(&told, 1);
    assert_int_not_equal(one.err, EMBTIER_OK);
    assert_true(one.msg.text[0] != '\0');
    free_both(&one);
    session_maker_free(maker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_users_take_turns_and_large_ones_wait_for_small_ones),
        cmocka_unit_test(test_one_that_is_given_up_is_made_no_further),
        cmocka_unit_test(test_what_waits_at_the_end_is_told_and_what_is_freed_is),
        cmocka_unit_test(test_memory_of_a_client_that_has_ended_is_freed_even_if_mapped),
        cmocka_unit_test(test_memory_that_cannot_be_had_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
