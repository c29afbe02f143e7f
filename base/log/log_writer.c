/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log/log_writer.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define LATE_WAIT_MS  100 /* for a line logged after the end */
#define FAULT_WAIT_MS 250

enum mode {
    MODE_DIRECT, /* no thread yet, or standard error is a file: callers write */
    MODE_THREAD, /* the thread writes */
    MODE_STUCK,  /* the thread did not end in time: lines are dropped */
    MODE_ENDED,  /* callers write if that does not block */
};

/* Process-wide, as standard error is. */
static struct {
    pthread_mutex_t lock; /* protects all but the atomics */
    pthread_cond_t wake;  /* wakes the thread: lines to write, or the end */
    pthread_cond_t idle;  /* the thread has written everything */
    pthread_t thread;
    log_dropped_text dropped_text;
    char ring[LOG_BUFFER_BYTES];
    uint64_t put, taken; /* bytes of lines since the beginning; the ring holds those between */
    uint64_t untold;     /* dropped lines that no line has reported yet */
    uint64_t gap_at;     /* where the first of them would have been */
    bool is_failing;     /* the last write failed: a report of lost lines would be lost too */
    bool is_ending;
    atomic_int mode;
    atomic_uint_fast64_t waiting; /* lines in the ring, and the one being written */
    atomic_uint_fast64_t dropped;
} writer = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- Writing ---- */

static bool await_room(int timeout_ms)
{
    struct pollfd fd = { .fd = STDERR_FILENO, .events = POLLOUT };

    return poll(&fd, 1, timeout_ms) > 0;
}

/* Writes a whole line, however long the reader takes. False: an error. */
static bool write_line(const char *line, size_t bytes)
{
    while (bytes > 0) {
        const ssize_t written = write(STDERR_FILENO, line, bytes);

        if (written > 0) {
            line += written;
            bytes -= (size_t)written;
        } else if (written < 0 && errno == EAGAIN) {
            (void)await_room(-1); /* a process that shares it has made it non-blocking */
        } else if (written == 0 || errno != EINTR) {
            return false;
        }
    }
    return true;
}

/* ---- The ring, under the lock ---- */

static void copy_in(const char *line, size_t bytes)
{
    const size_t at = writer.put % LOG_BUFFER_BYTES;
    const size_t first = MIN(bytes, LOG_BUFFER_BYTES - at);

    memcpy(writer.ring + at, line, first);
    memcpy(writer.ring, line + first, bytes - first);
    writer.put += bytes;
}

static size_t copy_out(char line[LOG_LINE_BYTES])
{
    size_t bytes = 0;

    do
        line[bytes] = writer.ring[writer.taken++ % LOG_BUFFER_BYTES];
    while (line[bytes++] != '\n' && bytes < LOG_LINE_BYTES);
    return bytes;
}

static void drop_line(uint64_t at)
{
    if (writer.untold++ == 0)
        writer.gap_at = at;
    atomic_fetch_add_explicit(&writer.dropped, 1, memory_order_relaxed);
}

/* ---- The thread ---- */

static bool can_tell(void)
{
    return writer.untold > 0 && !writer.is_failing && writer.taken >= writer.gap_at;
}

/* Releases the lock to write. */
static bool write_unlocked(const char *line, size_t bytes)
{
    bool is_written;

    pthread_mutex_unlock(&writer.lock);
    is_written = write_line(line, bytes);
    pthread_mutex_lock(&writer.lock);
    writer.is_failing = !is_written;
    return is_written;
}

static void tell_dropped(char line[LOG_LINE_BYTES])
{
    const uint64_t count = writer.untold;

    writer.untold = 0;
    if (!write_unlocked(line, writer.dropped_text(line, count))) {
        writer.untold += count;
        writer.gap_at = writer.taken;
    }
}

static void write_next(char line[LOG_LINE_BYTES])
{
    const uint64_t at = writer.taken;

    if (!write_unlocked(line, copy_out(line)))
        drop_line(at);
    atomic_fetch_sub_explicit(&writer.waiting, 1, memory_order_release);
}

static void *writer_main(void *arg)
{
    char line[LOG_LINE_BYTES];

    (void)arg;
    pthread_mutex_lock(&writer.lock);
    for (;;) {
        if (can_tell())
            tell_dropped(line);
        else if (writer.taken < writer.put)
            write_next(line);
        else if (writer.is_ending)
            break;
        else
            pthread_cond_wait(&writer.wake, &writer.lock);
    }
    atomic_store(&writer.mode, MODE_ENDED);
    pthread_cond_signal(&writer.idle);
    pthread_mutex_unlock(&writer.lock);
    return NULL;
}

/* ---- Faults ---- */

/* The default action comes next. This gives the thread a moment to write earlier lines. Uses only
 * async-signal-safe calls. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    const struct timespec pause = { .tv_nsec = 1000000L };
    const int before = errno;

    (void)context;
    for (int ms = 0; ms < FAULT_WAIT_MS && !pthread_equal(pthread_self(), writer.thread) &&
                     atomic_load_explicit(&writer.waiting, memory_order_acquire) > 0;
         ms++)
        nanosleep(&pause, NULL);
    if (info->si_code <= 0) /* sent by a process: returning would resume the program */
        raise(number);
    errno = before;
}

static void watch_faults(void)
{
    static const int faults[] = { SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV };
    struct sigaction action = { .sa_sigaction = on_fault,
                                .sa_flags = SA_SIGINFO | (int)SA_RESETHAND };

    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
        struct sigaction before;

        if (sigaction(faults[i], NULL, &before) == 0 && !(before.sa_flags & SA_SIGINFO) &&
            before.sa_handler == SIG_DFL)
            (void)sigaction(faults[i], &action, NULL);
    }
}

/* ---- Operations ---- */

/* True if standard error is a file, to which writes never wait for a reader. */
static bool is_file(void)
{
    struct stat info;

    return fstat(STDERR_FILENO, &info) == 0 && S_ISREG(info.st_mode);
}

int log_writer_begin(log_dropped_text dropped_text)
{
    int rc;

    if (is_file())
        return 0;
    writer.dropped_text = dropped_text;
    writer.is_ending = false;
    pthread_cond_init(&writer.wake, NULL);
    clock_init_cond(&writer.idle);
    rc = pthread_create(&writer.thread, NULL, writer_main, NULL);
    if (rc != 0)
        return rc;
    pthread_setname_np(writer.thread, "log");
    watch_faults();
    atomic_store(&writer.mode, MODE_THREAD);
    return 0;
}

/* The caller holds the lock. */
static void await_end(uint32_t wait_ms)
{
    const struct timespec until = clock_until(wait_ms * UINT64_C(1000000));

    while (atomic_load(&writer.mode) == MODE_THREAD)
        if (pthread_cond_timedwait(&writer.idle, &writer.lock, &until) == ETIMEDOUT)
            break;
}

void log_writer_end(uint32_t wait_ms)
{
    bool has_ended;

    pthread_mutex_lock(&writer.lock);
    if (atomic_load(&writer.mode) != MODE_THREAD) {
        pthread_mutex_unlock(&writer.lock);
        return;
    }
    writer.is_ending = true;
    pthread_cond_signal(&writer.wake);
    await_end(wait_ms);
    has_ended = atomic_load(&writer.mode) == MODE_ENDED;
    if (!has_ended)
        atomic_store(&writer.mode, MODE_STUCK);
    pthread_mutex_unlock(&writer.lock);
    if (has_ended)
        pthread_join(writer.thread, NULL);
    else
        pthread_detach(writer.thread);
}

static void put_locked(const char *line, size_t bytes)
{
    if (atomic_load(&writer.mode) != MODE_THREAD ||
        LOG_BUFFER_BYTES - (writer.put - writer.taken) < bytes) {
        drop_line(writer.put);
        return;
    }
    copy_in(line, bytes);
    atomic_fetch_add_explicit(&writer.waiting, 1, memory_order_relaxed);
    pthread_cond_signal(&writer.wake);
}

void log_writer_put(const char *line, size_t bytes)
{
    const int mode = atomic_load(&writer.mode);

    if (mode == MODE_DIRECT) {
        if (!write_line(line, bytes))
            atomic_fetch_add_explicit(&writer.dropped, 1, memory_order_relaxed);
    } else if (mode == MODE_ENDED) {
        if (await_room(LATE_WAIT_MS))
            (void)write_line(line, bytes);
    } else {
        pthread_mutex_lock(&writer.lock);
        put_locked(line, bytes);
        pthread_mutex_unlock(&writer.lock);
    }
}

uint64_t log_writer_dropped(void)
{
    return atomic_load_explicit(&writer.dropped, memory_order_relaxed);
}
