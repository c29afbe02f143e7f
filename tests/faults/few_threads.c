/* SPDX-License-Identifier: Apache-2.0 */
/* few_threads: preloaded into embtierd. It limits threads as RLIMIT_NPROC and a control group's
 * pids do: pthread_create() fails while there are too many.
 *
 * EMBTIER_FAULT_CONTROL names a file with a struct fault_control, which this library and the test
 * map. Threads made before the file is mapped are counted and never refused. */
#undef _FILE_OFFSET_BITS /* with it, mmap and mmap64 are one symbol */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* The test knows these offsets. */
struct fault_control {
    _Atomic uint64_t limit;   /* threads besides the first; 2^64 - 1: no limit */
    _Atomic uint64_t threads; /* threads now, besides the first */
    _Atomic uint64_t most;    /* the most threads at any time */
    _Atomic uint64_t made;    /* threads made since the start, or since the test set this to 0 */
    _Atomic uint64_t refused; /* threads refused, likewise */
};

struct start {
    void *(*run)(void *);
    void *argument;
};

typedef int (*create_function)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

static struct fault_control nothing = { .limit = UINT64_MAX };
static struct fault_control *control = &nothing;

__attribute__((constructor)) static void begin(void)
{
    const char *const path = getenv("EMBTIER_FAULT_CONTROL");
    const int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *memory;

    if (fd < 0)
        return;
    memory = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory == MAP_FAILED)
        abort();
    control = memory;
}

static void ended(void *unused)
{
    (void)unused;
    atomic_fetch_sub(&control->threads, 1);
}

static void *run(void *memory)
{
    const struct start start = *(struct start *)memory;
    void *result;

    free(memory);
    pthread_cleanup_push(ended, NULL);
    result = start.run(start.argument);
    pthread_cleanup_pop(1);
    return result;
}

static int refuse(void)
{
    atomic_fetch_sub(&control->threads, 1);
    atomic_fetch_add(&control->refused, 1);
    return EAGAIN;
}

__attribute__((visibility("default"))) int pthread_create(pthread_t *thread,
                                                          const pthread_attr_t *attributes,
                                                          void *(*function)(void *), void *argument)
{
    const create_function next = (create_function)dlsym(RTLD_NEXT, "pthread_create");
    const uint64_t threads = atomic_fetch_add(&control->threads, 1) + 1;
    struct start *start;
    int rc;

    if (threads > atomic_load(&control->limit))
        return refuse();
    start = malloc(sizeof(*start));
    if (!start)
        return refuse();
    *start = (struct start){ function, argument };
    rc = next(thread, attributes, run, start);
    if (rc != 0) {
        free(start);
        refuse();
        return rc;
    }
    atomic_fetch_add(&control->made, 1);
    for (uint64_t most = atomic_load(&control->most); most < threads;)
        if (atomic_compare_exchange_weak(&control->most, &most, threads))
            break;
    return 0;
}
