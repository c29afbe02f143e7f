/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the layout of shared memory is as both sides rely on, and that its barriers hold. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/macros.h"
#include "proto/shm_ring.h"

#define SLOTS    4
#define REQUESTS 50000

static void test_slots_lie_on_cache_lines_of_their_own(void **state)
{
    const uint32_t slot_counts[] = { 1, 3, OP_SLOTS_DEFAULT, OP_SLOTS_MAX };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(slot_counts); i++) {
        assert_int_equal(shm_control_bytes(slot_counts[i]) % CACHE_LINE, 0);
        assert_int_equal(shm_arena_payload_offset(slot_counts[i]) % SHM_ALIGN, 0);
    }
    assert_int_equal(offsetof(struct shm_arena_head, client_waiting), CACHE_LINE);
    assert_int_equal(shm_control_bytes(64), 128 + 64 * 64);
}

struct pair {
    struct shm_control *control;
    struct shm_arena_head *head;
    uint64_t payload[SLOTS];
    uint64_t answer[SLOTS];
};

/* Answers payload with payload + 1, as a lane would: in order, looking only at the tail. */
static void *serve(void *arg)
{
    struct pair *pair = arg;
    uint32_t done = 0;

    while (done < REQUESTS) {
        if (shm_read_tail(pair->head) == done) {
            sched_yield();
            continue;
        }
        pair->answer[done % SLOTS] = pair->payload[done % SLOTS] + 1;
        shm_publish_completion(&shm_completions(pair->control)[done % SLOTS], done + 1);
        done++;
    }
    return NULL;
}

static void test_what_is_written_before_publishing_is_seen_after_it(void **state)
{
    static struct pair pair;
    pthread_t server;
    uint64_t wrong = 0;

    (void)state;
    pair.control = calloc(1, shm_control_bytes(SLOTS));
    pair.head = calloc(1, shm_arena_payload_offset(SLOTS));
    assert_non_null(pair.control);
    assert_non_null(pair.head);
    assert_int_equal(pthread_create(&server, NULL, serve, &pair), 0);
    for (uint32_t n = 0; n < REQUESTS; n++) {
        const uint32_t slot = n % SLOTS;

        pair.payload[slot] = n * UINT64_C(3);
        shm_publish_tail(pair.head, n + 1);
        while (shm_read_sequence(&shm_completions(pair.control)[slot]) != n + 1)
            sched_yield();
        wrong += pair.answer[slot] != n * UINT64_C(3) + 1;
    }
    pthread_join(server, NULL);
    assert_int_equal(wrong, 0);
    free(pair.control);
    free(pair.head);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots_lie_on_cache_lines_of_their_own),
        cmocka_unit_test(test_what_is_written_before_publishing_is_seen_after_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
