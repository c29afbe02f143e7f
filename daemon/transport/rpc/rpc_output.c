/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transport/rpc/rpc_output.h"

#include <assert.h>

#include "base/macros.h"

void rpc_outputs_init(struct rpc_outputs *line)
{
    line->first = NULL;
    line->end = &line->first;
}

void rpc_outputs_add(struct rpc_outputs *line, struct rpc_output *output)
{
    output->next = NULL;
    output->bytes_sent = 0;
    output->bytes_in_all = output->byte_count + output->more_bytes +
                           rpc_spans_bytes(output->spans, output->span_numbers);
    *line->end = output;
    line->end = &output->next;
}

/* Buffers to be filled in, and how many bytes in front of them were sent before. */
struct filling {
    struct iovec *buffers;
    uint32_t count;
    uint32_t most;
    uint64_t skip;
};

/* False: there is no room for more buffers. */
static bool fill(struct filling *f, const uint8_t *bytes, uint64_t count)
{
    const uint64_t skipped = MIN(f->skip, count);

    f->skip -= skipped;
    if (skipped == count)
        return true;
    if (f->count == f->most)
        return false;
    f->buffers[f->count++] = (struct iovec){ .iov_base = (void *)(uintptr_t)(bytes + skipped),
                                             .iov_len = count - skipped };
    return true;
}

static bool fill_output(struct filling *f, const struct rpc_output *output)
{
    f->skip = output->bytes_sent;
    if (!fill(f, output->bytes, output->byte_count) || !fill(f, output->more, output->more_bytes))
        return false;
    for (size_t i = 0; i < output->span_numbers; i += 2)
        if (!fill(f, output->region + output->spans[i], output->spans[i + 1]))
            return false;
    return true;
}

uint32_t rpc_outputs_next(const struct rpc_outputs *line, struct iovec *ret_buffers, uint32_t most)
{
    struct filling f = { .buffers = ret_buffers, .most = most };

    for (const struct rpc_output *output = line->first; output; output = output->next)
        if (!fill_output(&f, output))
            break;
    return f.count;
}

static struct rpc_output *take_first(struct rpc_outputs *line)
{
    struct rpc_output *const output = line->first;

    line->first = output->next;
    if (!line->first)
        line->end = &line->first;
    return output;
}

/* Calls the functions of outputs that are over, which may add others to the line. */
static void tell(struct rpc_output *over)
{
    while (over) {
        struct rpc_output *const next = over->next;

        over->sent(over);
        over = next;
    }
}

/* All bytes are noted before any function is called, as that may begin to send the rest. */
void rpc_outputs_sent(struct rpc_outputs *line, uint64_t bytes)
{
    struct rpc_output *over = NULL, **end = &over;

    while (bytes > 0) {
        struct rpc_output *const output = line->first;
        uint64_t here;

        assert(output);
        here = MIN(bytes, output->bytes_in_all - output->bytes_sent);
        output->bytes_sent += here;
        bytes -= here;
        if (output->bytes_sent < output->bytes_in_all)
            break;
        *end = take_first(line);
        end = &output->next;
        output->next = NULL;
    }
    tell(over);
}

void rpc_outputs_drop(struct rpc_outputs *line)
{
    struct rpc_output *const all = line->first;

    rpc_outputs_init(line);
    tell(all);
}
