/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that frames go out whole, once, and in order, in pieces of any size, also if the end of one
 * adds others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/macros.h"
#include "daemon/transport/rpc/rpc_output.h"

#define OUTPUTS 40
#define BUFFERS 5

struct sender {
    struct rpc_outputs line;
    struct rpc_output outputs[OUTPUTS];
    uint64_t spans[OUTPUTS][4];
    uint8_t region[4096];
    uint32_t added, over;
    uint8_t expected[OUTPUTS * 700];
    size_t expected_count;
    uint64_t random;
    size_t most; /* bytes that the system takes with one call */
    uint8_t got[OUTPUTS * 700];
    size_t got_count, under_way;
};

static struct sender sender;

static uint32_t draw(uint32_t below)
{
    sender.random = sender.random * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(sender.random >> 33) % below;
}

static void expect(const uint8_t *bytes, size_t count)
{
    memcpy(sender.expected + sender.expected_count, bytes, count);
    sender.expected_count += count;
}

static void on_over(struct rpc_output *output);
static void begin_to_send(void);

/* Adds an output with a head, then bytes or two spans of the region. */
static void add(void)
{
    struct rpc_output *const output = &sender.outputs[sender.added];
    uint64_t *const spans = sender.spans[sender.added++];

    *output = (struct rpc_output){ .sent = on_over, .byte_count = draw(RPC_HEAD_BYTES) + 1 };
    memset(output->bytes, (int)sender.added, output->byte_count);
    expect(output->bytes, output->byte_count);
    if (draw(3) == 0) {
        output->more = sender.region + draw(1000);
        output->more_bytes = draw(200);
        expect(output->more, output->more_bytes);
    } else {
        output->region = sender.region;
        output->spans = spans;
        output->span_numbers = 4;
        for (uint32_t i = 0; i < 4; i += 2) {
            spans[i] = draw(3000);
            spans[i + 1] = 1 + draw(200);
            expect(sender.region + spans[i], spans[i + 1]);
        }
    }
    rpc_outputs_add(&sender.line, output);
}

/* Each output is over once, in order. Then others come, and may be sent at once. */
static void on_over(struct rpc_output *output)
{
    assert_ptr_equal(output, &sender.outputs[sender.over]);
    sender.over++;
    for (uint32_t i = draw(3); i > 0 && sender.added < OUTPUTS; i--) {
        add();
        begin_to_send();
    }
}

/* Takes the next bytes, as a system would, unless some are under way. */
static void begin_to_send(void)
{
    const size_t most = 1 + draw((uint32_t)sender.most);
    struct iovec buffers[BUFFERS];
    uint32_t count;

    if (sender.under_way > 0)
        return;
    count = rpc_outputs_next(&sender.line, buffers, BUFFERS);
    for (uint32_t i = 0; i < count && sender.under_way < most; i++) {
        const size_t here = MIN(buffers[i].iov_len, most - sender.under_way);

        assert_true(buffers[i].iov_len > 0);
        assert_true(sender.got_count + here <= sizeof(sender.got));
        memcpy(sender.got + sender.got_count, buffers[i].iov_base, here);
        sender.got_count += here;
        sender.under_way += here;
    }
}

/* The call of the system is over. */
static void end_to_send(void)
{
    const size_t bytes = sender.under_way;

    sender.under_way = 0;
    rpc_outputs_sent(&sender.line, bytes);
    begin_to_send();
}

static void test_bytes_go_out_once_and_in_order(void **state)
{
    (void)state;
    for (uint32_t turn = 0; turn < 300; turn++) {
        sender = (struct sender){ .random = turn, .most = turn % 2 ? 30 : 1000 };
        rpc_outputs_init(&sender.line);
        for (size_t i = 0; i < sizeof(sender.region); i++)
            sender.region[i] = (uint8_t)draw(256);
        for (uint32_t i = 0; i < 3; i++)
            add();
        begin_to_send();
        while (sender.under_way > 0)
            end_to_send();
        assert_true(rpc_outputs_are_empty(&sender.line));
        assert_int_equal(sender.over, sender.added);
        assert_int_equal(sender.got_count, sender.expected_count);
        assert_memory_equal(sender.got, sender.expected, sender.got_count);
    }
}

static void test_dropped_outputs_are_over_too(void **state)
{
    (void)state;
    sender = (struct sender){ .random = 1 };
    rpc_outputs_init(&sender.line);
    for (uint32_t i = 0; i < 5; i++)
        add();
    sender.added = OUTPUTS; /* none is added */
    rpc_outputs_drop(&sender.line);
    assert_int_equal(sender.over, 5);
    assert_true(rpc_outputs_are_empty(&sender.line));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_go_out_once_and_in_order),
        cmocka_unit_test(test_dropped_outputs_are_over_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
