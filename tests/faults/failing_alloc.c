/* SPDX-License-Identifier: Apache-2.0 */
/* failing_alloc: preloaded into embtierd. It makes the nth allocation of the program's own code
 * fail, once, and counts what that code has not freed.
 *
 * Own code is the program's text: a call counts if it returns there. A call that the compiler made
 * a jump counts for its caller. Allocations of libraries do not count: RocksDB, and the code that
 * unpacks messages and JSON, call malloc(), or operator new in libstdc++.
 *
 * EMBTIER_FAULT_CONTROL names a file with a struct fault_control, which this library and the test
 * map. The file says which call must fail, and outlives the process. Allocations before the file
 * was mapped are unknown; own code makes none that early. */
#undef _FILE_OFFSET_BITS /* with it, mmap and mmap64 are one symbol */

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* The tests know these offsets. */
struct fault_control {
    _Atomic uint64_t fail_at;     /* this call, counted from now on, fails; 0: none */
    _Atomic uint64_t calls;       /* calls since the test set this to 0 */
    _Atomic uint64_t failed;      /* calls that failed */
    _Atomic uint64_t failed_site; /* where the last failed call returns to in the program */
    _Atomic uint64_t live;        /* allocations of own code that are not freed */
    _Atomic uint64_t live_bytes;  /* bytes of these, as realloc() last set them */
    _Atomic uint64_t dump;        /* nonzero: fill in the fields below, then set this to 0 */
    _Atomic uint64_t used_bytes;  /* of the whole process, RocksDB too */
    _Atomic uint64_t site_count;
    uint64_t sites[503]; /* call sites of own code's live allocations */
};

static_assert(sizeof(struct fault_control) == 4096, "a page");
static_assert(sizeof(off_t) == sizeof(off64_t), "a 64-bit machine");

/* Live allocations by address. Each bucket has its own lock, since all threads of RocksDB free
 * memory. */
#define BUCKETS      (1u << 14)
#define BUCKET_ROOM  14
#define FAULT_PUBLIC __attribute__((visibility("default")))

struct live {
    const void *memory;
    uint64_t bytes;
    uint64_t site;
};

struct bucket {
    atomic_flag lock;
    _Atomic uint32_t count;
    struct live lives[BUCKET_ROOM];
};

static struct bucket buckets[BUCKETS];
static struct fault_control nothing;
static struct fault_control *control = &nothing;
static uintptr_t text_begin;
static uintptr_t text_end;
static uintptr_t program_base;

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *memory);
int __asprintf_chk(char **ret_text, int flag, const char *format, ...);
int __vasprintf_chk(char **ret_text, int flag, const char *format, va_list args);

/* ---- The program and the file ---- */

/* The first object in the list is the program. */
static int find_text(struct dl_phdr_info *info, size_t bytes, void *context)
{
    (void)bytes;
    (void)context;
    program_base = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *const header = &info->dlpi_phdr[i];

        if (header->p_type != PT_LOAD || !(header->p_flags & PF_X))
            continue;
        text_begin = info->dlpi_addr + header->p_vaddr;
        text_end = text_begin + header->p_memsz;
    }
    return 1;
}

static void *map(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

__attribute__((constructor)) static void begin(void)
{
    const char *const path = getenv("EMBTIER_FAULT_CONTROL");
    void *mapping;
    int fd;

    if (!path)
        return;
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        abort();
    mapping = map(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapping == MAP_FAILED)
        abort();
    control = mapping;
    dl_iterate_phdr(find_text, NULL);
}

static bool is_ours(const void *site)
{
    return (uintptr_t)site >= text_begin && (uintptr_t)site < text_end;
}

/* ---- Live allocations ---- */

static struct bucket *lock_bucket(const void *memory)
{
    const uint64_t hash = ((uintptr_t)memory >> 4) * UINT64_C(0x9e3779b97f4a7c15);
    struct bucket *const bucket = &buckets[hash >> 50];

    while (atomic_flag_test_and_set_explicit(&bucket->lock, memory_order_acquire))
        ;
    return bucket;
}

static void unlock_bucket(struct bucket *bucket)
{
    atomic_flag_clear_explicit(&bucket->lock, memory_order_release);
}

static void add_live(const void *memory, uint64_t bytes, const void *site)
{
    struct bucket *const bucket = lock_bucket(memory);

    if (bucket->count == BUCKET_ROOM)
        abort(); /* more live allocations than expected: make BUCKETS larger */
    bucket->lives[bucket->count++] = (struct live){ memory, bytes, (uintptr_t)site - program_base };
    unlock_bucket(bucket);
    control->live++;
    control->live_bytes += bytes;
}

/* Forgets the allocation. True if it was own code's. */
static bool remove_live(const void *memory, struct live *ret_live)
{
    struct bucket *bucket;
    bool found = false;

    if (control == &nothing || !memory)
        return false;
    bucket = lock_bucket(memory);
    for (uint32_t i = 0; i < bucket->count && !found; i++) {
        if (bucket->lives[i].memory != memory)
            continue;
        *ret_live = bucket->lives[i];
        bucket->lives[i] = bucket->lives[--bucket->count];
        found = true;
    }
    unlock_bucket(bucket);
    if (found) {
        control->live--;
        control->live_bytes -= ret_live->bytes;
    }
    return found;
}

static void dump(void)
{
    const struct mallinfo2 info = mallinfo2();
    uint64_t count = 0;

    control->used_bytes = info.uordblks + info.hblkhd;
    for (uint32_t b = 0; b < BUCKETS; b++) {
        while (atomic_flag_test_and_set_explicit(&buckets[b].lock, memory_order_acquire))
            ;
        for (uint32_t i = 0; i < buckets[b].count; i++) {
            if (count < sizeof(control->sites) / sizeof(control->sites[0]))
                control->sites[count] = buckets[b].lives[i].site;
            count++;
        }
        unlock_bucket(&buckets[b]);
    }
    control->site_count = count;
    control->dump = 0;
}

/* At the end of the process, for a test that finds some left. */
__attribute__((destructor)) static void dump_last(void)
{
    if (control != &nothing)
        dump();
}

/* ---- The nth call ---- */

/* True if this call must fail. */
static bool fails(const void *site)
{
    uint64_t call;

    if (control == &nothing || !is_ours(site))
        return false;
    if (control->dump)
        dump();
    call = ++control->calls;
    if (call != control->fail_at)
        return false;
    control->failed_site = (uintptr_t)site - program_base;
    control->failed++;
    errno = ENOMEM;
    return true;
}

static void *keep(void *memory, uint64_t bytes, const void *site)
{
    if (memory && control != &nothing && is_ours(site))
        add_live(memory, bytes, site);
    return memory;
}

#define SITE __builtin_return_address(0)

FAULT_PUBLIC void *malloc(size_t bytes)
{
    return fails(SITE) ? NULL : keep(__libc_malloc(bytes), bytes, SITE);
}

FAULT_PUBLIC void *calloc(size_t count, size_t bytes)
{
    return fails(SITE) ? NULL : keep(__libc_calloc(count, bytes), count * bytes, SITE);
}

/* Forgets the old block before it is freed, since another thread may get the same address at
 * once. */
static void *reallocate(void *memory, size_t bytes, const void *site)
{
    struct live before = { 0 };
    const bool was_ours = remove_live(memory, &before);
    void *const larger = __libc_realloc(memory, bytes);

    if (larger)
        return keep(larger, bytes, site);
    if (was_ours && bytes > 0)
        add_live(memory, before.bytes, site);
    return NULL;
}

FAULT_PUBLIC void *realloc(void *memory, size_t bytes)
{
    return fails(SITE) ? NULL : reallocate(memory, bytes, SITE);
}

FAULT_PUBLIC void *reallocarray(void *memory, size_t count, size_t bytes)
{
    size_t all;

    if (fails(SITE) || __builtin_mul_overflow(count, bytes, &all)) {
        errno = ENOMEM;
        return NULL;
    }
    return reallocate(memory, all, SITE);
}

FAULT_PUBLIC void free(void *memory)
{
    struct live live;

    remove_live(memory, &live);
    __libc_free(memory);
}

FAULT_PUBLIC int posix_memalign(void **ret_memory, size_t alignment, size_t bytes)
{
    void *const memory = fails(SITE) ? NULL : keep(__libc_memalign(alignment, bytes), bytes, SITE);

    if (!memory)
        return ENOMEM;
    *ret_memory = memory;
    return 0;
}

FAULT_PUBLIC void *aligned_alloc(size_t alignment, size_t bytes)
{
    return fails(SITE) ? NULL : keep(__libc_memalign(alignment, bytes), bytes, SITE);
}

/* ---- Strings ---- */

static char *copy(const char *text, size_t length, const void *site)
{
    char *const memory = fails(site) ? NULL : keep(__libc_malloc(length + 1), length + 1, site);

    if (!memory)
        return NULL;
    memcpy(memory, text, length);
    memory[length] = '\0';
    return memory;
}

FAULT_PUBLIC char *strdup(const char *text)
{
    return copy(text, strlen(text), SITE);
}

FAULT_PUBLIC char *strndup(const char *text, size_t most)
{
    return copy(text, strnlen(text, most), SITE);
}

static int print(char **ret_text, const char *format, va_list args, const void *site)
{
    va_list again;
    char *text;
    int length;

    va_copy(again, args);
    length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (length < 0)
        return -1;
    text = fails(site) ? NULL : keep(__libc_malloc((size_t)length + 1), (size_t)length + 1, site);
    if (!text)
        return -1;
    vsnprintf(text, (size_t)length + 1, format, args);
    *ret_text = text;
    return length;
}

/* Both names of each: code built with _FORTIFY_SOURCE calls the second. */
#define PRINT(name, ...)                                                                           \
    FAULT_PUBLIC int name(char **ret_text, __VA_ARGS__ const char *format, ...)                    \
    {                                                                                              \
        va_list args;                                                                              \
        int length;                                                                                \
                                                                                                   \
        va_start(args, format);                                                                    \
        length = print(ret_text, format, args, SITE);                                              \
        va_end(args);                                                                              \
        return length;                                                                             \
    }

PRINT(asprintf)
PRINT(__asprintf_chk, __attribute__((unused)) int flag, )

FAULT_PUBLIC int vasprintf(char **ret_text, const char *format, va_list args)
{
    return print(ret_text, format, args, SITE);
}

FAULT_PUBLIC int __vasprintf_chk(char **ret_text, int flag, const char *format, va_list args)
{
    (void)flag;
    return print(ret_text, format, args, SITE);
}

/* ---- Pages ---- */

static void *map_for(void *at, size_t bytes, int protection, int flags, int fd, off_t offset,
                     const void *site)
{
    void *const memory = fails(site) ? MAP_FAILED : map(at, bytes, protection, flags, fd, offset);

    /* A mapping at a fixed place lies in one that is kept, and goes with it. */
    return memory == MAP_FAILED || (flags & MAP_FIXED) ? memory : keep(memory, bytes, site);
}

FAULT_PUBLIC void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    return map_for(at, bytes, protection, flags, fd, offset, SITE);
}

FAULT_PUBLIC void *mmap64(void *at, size_t bytes, int protection, int flags, int fd, off64_t offset)
{
    return map_for(at, bytes, protection, flags, fd, offset, SITE);
}

FAULT_PUBLIC int munmap(void *memory, size_t bytes)
{
    struct live live;

    remove_live(memory, &live);
    return (int)syscall(SYS_munmap, memory, bytes);
}

/* The tiers' arenas. */
struct memkind;
typedef int (*memkind_fn)(struct memkind *, void **, size_t, size_t);
FAULT_PUBLIC int memkind_posix_memalign(struct memkind *kind, void **ret_memory, size_t alignment,
                                        size_t bytes);

int memkind_posix_memalign(struct memkind *kind, void **ret_memory, size_t alignment, size_t bytes)
{
    void *const function = dlsym(RTLD_NEXT, "memkind_posix_memalign");

    if (!function)
        abort();
    if (fails(SITE))
        return ENOMEM;
    return ((memkind_fn)function)(kind, ret_memory, alignment, bytes);
}
