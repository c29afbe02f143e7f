/* SPDX-License-Identifier: Apache-2.0 */
#include "client/transport/shm/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "proto/shm_ring.h"

#define NS_PER_S UINT64_C(1000000000)

struct shared_memory {
    struct client_channel base; /* its region is the arena */
    const struct shm_control *control;
    uint64_t control_bytes; /* as mapped */
    int doorbell;
};

static struct shared_memory *memory_of(struct client_channel *channel)
{
    return CONTAINER_OF(channel, struct shared_memory, base);
}

static struct shm_arena_head *head_of(const struct client_channel *channel)
{
    return (struct shm_arena_head *)(void *)channel->region;
}

/* ---- The channel's functions ---- */

static enum embtier_err submit(struct client_channel *channel, uint32_t number,
                               const struct op_submission *submission, struct err_msg *msg)
{
    const struct shared_memory *const memory = memory_of(channel);
    struct shm_arena_head *const head = head_of(channel);
    const uint64_t one = 1;

    shm_submissions(head)[number % channel->slot_count] = *submission;
    (void)msg;
    shm_publish_tail(head, number + 1);
    /* A write fails only if the counter is full, and then the bell is ringing already. */
    if (shm_lane_is_asleep(memory->control))
        (void)!write(memory->doorbell, &one, sizeof(one));
    return EMBTIER_OK;
}

/* The server may complete the request between the caller's look at the sequence and the mark that
 * the client waits. Then the futex does not have the value @seen any more. */
static void sleep_on(struct client_channel *channel, const struct op_completion *completion,
                     uint32_t seen, uint64_t timeout_ns)
{
    const struct timespec timeout = { .tv_sec = (time_t)(timeout_ns / NS_PER_S),
                                      .tv_nsec = (long)(timeout_ns % NS_PER_S) };

    shm_client_waits(head_of(channel), 1);
    /* Not FUTEX_PRIVATE, because another process wakes the client. Waiting needs no right to
     * write. */
    syscall(SYS_futex, &completion->sequence, FUTEX_WAIT, seen, &timeout, NULL, 0);
    shm_client_waits(head_of(channel), 0);
}

static enum embtier_err ended(const struct client_channel *channel, struct err_msg *msg)
{
    const struct shared_memory *const memory =
        CONTAINER_OF(channel, const struct shared_memory, base);
    const enum embtier_err err =
        (enum embtier_err)atomic_load_explicit(&memory->control->closed, memory_order_acquire);

    return err == EMBTIER_OK ? err : err_set(msg, err, "%s", err_text(err));
}

static void free_memory(struct client_channel *channel)
{
    struct shared_memory *const memory = memory_of(channel);

    if (memory->control)
        munmap((void *)(uintptr_t)memory->control, memory->control_bytes);
    closep(&memory->doorbell);
    free(memory);
}

static const struct client_channel_ops shared_memory_ops = {
    .submit = submit,
    .sleep = sleep_on,
    .ended = ended,
    .free = free_memory,
};

/* ---- Opening ---- */

/* Checks that @fd holds @bytes and cannot shrink. */
static enum embtier_err check_memfd(int fd, const char *what, uint64_t bytes, struct err_msg *msg)
{
    const int seals = fcntl(fd, F_GET_SEALS);
    struct stat status;

    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        return err_set(msg, EMBTIER_PROTOCOL, "the server's %s memory is not sealed", what);
    if (fstat(fd, &status) != 0)
        return err_set_errno(msg, errno, "the server's %s memory", what);
    if (status.st_size < 0 || (uint64_t)status.st_size < bytes)
        return err_set(msg, EMBTIER_PROTOCOL,
                       "the server's %s memory holds %jd bytes, %" PRIu64 " were announced", what,
                       (intmax_t)status.st_size, bytes);
    return EMBTIER_OK;
}

static enum embtier_err check_control(const struct shm_control *control,
                                      const Embtier__HelloReply *hello, struct err_msg *msg)
{
    if (control->magic != SHM_MAGIC)
        return err_set(msg, EMBTIER_PROTOCOL, "the server's control memory is not embtier's");
    if (control->layout_version != SHM_LAYOUT_VERSION)
        return err_set(msg, EMBTIER_VERSION,
                       "the server's shared memory has layout %u, this library knows %d",
                       control->layout_version, SHM_LAYOUT_VERSION);
    if (control->slot_count != hello->slot_count || control->arena_bytes != hello->arena_bytes ||
        control->max_batch_rows != hello->max_batch_rows)
        return err_set(msg, EMBTIER_PROTOCOL, "the server's control memory contradicts its hello");
    return EMBTIER_OK;
}

static enum embtier_err map(struct shared_memory *memory, const Embtier__HelloReply *hello,
                            const int fds[3], struct err_msg *msg)
{
    void *mapped;

    TRY(check_memfd(fds[0], "control", memory->control_bytes, msg));
    TRY(check_memfd(fds[1], "arena", hello->arena_bytes, msg));
    mapped = mmap(NULL, memory->control_bytes, PROT_READ, MAP_SHARED, fds[0], 0);
    if (mapped == MAP_FAILED)
        return err_set_errno(msg, errno, "cannot map the server's control memory");
    memory->control = mapped;
    memory->base.completions = (const struct op_completion *)(memory->control + 1);
    TRY(check_control(memory->control, hello, msg));
    mapped = mmap(NULL, memory->base.region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
    if (mapped == MAP_FAILED)
        return err_set_errno(msg, errno, "cannot map an arena of %" PRIu64 " bytes",
                             memory->base.region_bytes);
    memory->base.region = mapped;
    return EMBTIER_OK;
}

enum embtier_err shared_memory_open(const Embtier__HelloReply *hello, int fds[3],
                                    uint64_t arena_bytes_max, struct client_channel **ret_channel,
                                    struct err_msg *msg)
{
    _cleanup_(client_channel_freep) struct client_channel *channel = NULL;
    struct shared_memory *const memory = calloc(1, sizeof(*memory));

    if (!memory)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    channel = &memory->base;
    memory->doorbell = -1;
    memory->control_bytes = shm_control_bytes(hello->slot_count);
    memory->base = (struct client_channel){
        .ops = &shared_memory_ops,
        .region_bytes = MIN(hello->arena_bytes, arena_bytes_max),
        .payload = shm_arena_payload_offset(hello->slot_count),
        .slot_count = hello->slot_count,
    };
    if (channel->region_bytes <= channel->payload)
        return err_set(msg, EMBTIER_PROTOCOL, "an arena of %" PRIu64 " bytes has no room for rows",
                       channel->region_bytes);
    TRY(map(memory, hello, fds, msg));
    closep(&fds[0]);
    closep(&fds[1]);
    memory->doorbell = fds[2];
    fds[0] = fds[1] = fds[2] = -1;
    *ret_channel = TAKE(channel);
    return EMBTIER_OK;
}
