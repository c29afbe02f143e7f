/* SPDX-License-Identifier: Apache-2.0 */
#include "client/transport/shm/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S UINT64_C(1000000000)

void shared_memory_init(struct shared_memory *memory)
{
    *memory = (struct shared_memory){ .doorbell = -1 };
}

void shared_memory_close(struct shared_memory *memory)
{
    if (memory->control)
        munmap((void *)memory->control, memory->control_bytes);
    if (memory->arena)
        munmap(memory->arena, memory->arena_bytes);
    closep(&memory->doorbell);
    shared_memory_init(memory);
}

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

enum embtier_err shared_memory_open(const Embtier__HelloReply *hello, int fds[3],
                                    uint64_t arena_bytes_max, struct shared_memory *ret_memory,
                                    struct err_msg *msg)
{
    _cleanup_(shared_memory_close) struct shared_memory memory = { .doorbell = -1 };
    void *mapped;

    memory.slot_count = hello->slot_count;
    memory.max_batch_rows = hello->max_batch_rows;
    if (strlen(hello->config_file) < sizeof(memory.config_file))
        strcpy(memory.config_file, hello->config_file);
    memory.control_bytes = shm_control_bytes(hello->slot_count);
    memory.arena_bytes = MIN(hello->arena_bytes, arena_bytes_max);
    if (memory.arena_bytes <= shm_arena_payload_offset(hello->slot_count))
        return err_set(msg, EMBTIER_PROTOCOL, "an arena of %" PRIu64 " bytes has no room for rows",
                       memory.arena_bytes);
    TRY(check_memfd(fds[0], "control", memory.control_bytes, msg));
    TRY(check_memfd(fds[1], "arena", hello->arena_bytes, msg));
    mapped = mmap(NULL, memory.control_bytes, PROT_READ, MAP_SHARED, fds[0], 0);
    if (mapped == MAP_FAILED)
        return err_set_errno(msg, errno, "cannot map the server's control memory");
    memory.control = mapped;
    TRY(check_control(memory.control, hello, msg));
    mapped = mmap(NULL, memory.arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
    if (mapped == MAP_FAILED)
        return err_set_errno(msg, errno, "cannot map an arena of %" PRIu64 " bytes",
                             memory.arena_bytes);
    memory.arena = mapped;
    closep(&fds[0]);
    closep(&fds[1]);
    memory.doorbell = fds[2];
    fds[0] = fds[1] = fds[2] = -1;
    *ret_memory = memory;
    shared_memory_init(&memory);
    return EMBTIER_OK;
}

enum embtier_err shared_memory_replace(struct shared_memory *memory, struct shared_memory *fresh,
                                       struct err_msg *msg)
{
    void *const arena = memory->arena;

    /* Replaces the old mapping in one step. */
    if (mremap(fresh->arena, fresh->arena_bytes, fresh->arena_bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
               arena) == MAP_FAILED)
        return err_set_errno(msg, errno, "cannot map the new arena in place of the old one");
    memory->arena = NULL;
    shared_memory_close(memory);
    *memory = *fresh;
    memory->arena = arena;
    shared_memory_init(fresh);
    return EMBTIER_OK;
}

void shared_memory_ring(const struct shared_memory *memory)
{
    const uint64_t one = 1;

    /* A write fails only if the counter is full, and then the bell is ringing already. */
    if (write(memory->doorbell, &one, sizeof(one)) < 0)
        return;
}

void shared_memory_sleep(const struct op_completion *completion, uint32_t seen, uint64_t timeout_ns)
{
    const struct timespec timeout = { .tv_sec = (time_t)(timeout_ns / NS_PER_S),
                                      .tv_nsec = (long)(timeout_ns % NS_PER_S) };

    /* Not FUTEX_PRIVATE, because another process wakes the client. Waiting needs no right to
     * write. */
    syscall(SYS_futex, &completion->sequence, FUTEX_WAIT, seen, &timeout, NULL, 0);
}
