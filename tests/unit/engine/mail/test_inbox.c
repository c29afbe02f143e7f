/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that every message arrives once, in the order in which its sender sent it. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "base/macros.h"
#include "daemon/engine/mail/inbox.h"

#define PRODUCERS 4
#define MESSAGES  100000

struct numbered {
    struct message message;
    uint32_t producer;
    uint32_t number;
};

struct producer {
    struct inbox *inbox;
    struct numbered *messages;
    pthread_t thread;
};

static void *produce(void *context)
{
    struct producer *const producer = context;

    for (uint32_t i = 0; i < MESSAGES; i++)
        inbox_push(producer->inbox, &producer->messages[i].message);
    return NULL;
}

static void test_messages_of_four_producers_arrive_once_and_in_their_order(void **state)
{
    struct inbox inbox = { NULL };
    struct producer producers[PRODUCERS];
    uint32_t next[PRODUCERS] = { 0 };
    uint32_t got = 0;

    (void)state;
    for (uint32_t p = 0; p < PRODUCERS; p++) {
        producers[p].inbox = &inbox;
        producers[p].messages = calloc(MESSAGES, sizeof(struct numbered));
        for (uint32_t i = 0; i < MESSAGES; i++) {
            producers[p].messages[i].producer = p;
            producers[p].messages[i].number = i;
        }
        assert_int_equal(pthread_create(&producers[p].thread, NULL, produce, &producers[p]), 0);
    }
    while (got < PRODUCERS * MESSAGES) {
        struct message *message = inbox_take_all(&inbox);

        if (!message)
            sched_yield();
        while (message) {
            struct numbered *const numbered = CONTAINER_OF(message, struct numbered, message);

            message = message->next;
            assert_int_equal(numbered->number, next[numbered->producer]);
            next[numbered->producer]++;
            numbered->message.next = NULL; /* the receiver owns the message now */
            got++;
        }
    }
    for (uint32_t p = 0; p < PRODUCERS; p++) {
        pthread_join(producers[p].thread, NULL);
        free(producers[p].messages);
    }
    assert_true(inbox_is_empty(&inbox));
}

static void test_empty_inbox_gives_nothing(void **state)
{
    struct inbox inbox = { NULL };
    struct message message = { NULL, NULL };

    (void)state;
    assert_true(inbox_is_empty(&inbox));
    assert_null(inbox_take_all(&inbox));
    inbox_push(&inbox, &message);
    assert_false(inbox_is_empty(&inbox));
    assert_ptr_equal(inbox_take_all(&inbox), &message);
    assert_true(inbox_is_empty(&inbox));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_of_four_producers_arrive_once_and_in_their_order),
        cmocka_unit_test(test_empty_inbox_gives_nothing),
    };

    return cmocka_run_group_tests_name("inbox", tests, NULL, NULL);
}
