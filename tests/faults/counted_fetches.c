/* SPDX-License-Identifier: Apache-2.0 */
/* counted_fetches: preloaded into embtierd. It counts how often the program looks algorithms of
 * OpenSSL up, which takes locks: EVP_*_fetch(), and digests that were not fetched. Calls of libssl
 * and libcrypto are counted apart. Nothing fails.
 *
 * EMBTIER_FAULT_CONTROL names a file with a struct fetches, which this library and the test map. */
#undef _FILE_OFFSET_BITS /* with it, mmap and mmap64 are one symbol */

#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The test knows these offsets. */
struct fetches {
    _Atomic uint64_t own;     /* of the program */
    _Atomic uint64_t library; /* of OpenSSL itself */
};

static struct fetches nothing;
static struct fetches *fetches = &nothing;

__attribute__((constructor)) static void begin(void)
{
    const char *const path = getenv("EMBTIER_FAULT_CONTROL");
    const int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *memory;

    if (fd < 0)
        return;
    memory = mmap(NULL, sizeof(*fetches), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory == MAP_FAILED)
        abort();
    fetches = memory;
}

static void count(const void *caller)
{
    Dl_info info;
    const bool is_library =
        dladdr(caller, &info) != 0 && info.dli_fname &&
        (strstr(info.dli_fname, "libssl") || strstr(info.dli_fname, "libcrypto"));

    atomic_fetch_add(is_library ? &fetches->library : &fetches->own, 1);
}

static void *next(const char *name)
{
    void *const found = dlsym(RTLD_NEXT, name);

    if (!found)
        abort();
    return found;
}

typedef void *fetch_function(void *library, const char *name, const char *properties);

#define FETCH(kind)                                                                                \
    __attribute__((visibility("default"))) void *EVP_##kind##_fetch(                               \
        void *library, const char *name, const char *properties);                                  \
    void *EVP_##kind##_fetch(void *library, const char *name, const char *properties)              \
    {                                                                                              \
        count(__builtin_return_address(0));                                                        \
        return ((fetch_function *)next("EVP_" #kind "_fetch"))(library, name, properties);         \
    }

FETCH(MD)
FETCH(CIPHER)
FETCH(KDF)
FETCH(MAC)
FETCH(RAND)
FETCH(KEYMGMT)
FETCH(KEYEXCH)
FETCH(SIGNATURE)
FETCH(ASYM_CIPHER)
FETCH(KEM)

/* A digest such as EVP_sha256() has no provider yet: it is looked up at each use. */
static void count_digest(const void *type, const void *caller)
{
    if (type && !((const void *(*)(const void *))next("EVP_MD_get0_provider"))(type))
        count(caller);
}

__attribute__((visibility("default"))) int EVP_Digest(const void *data, size_t bytes,
                                                      unsigned char *ret_digest,
                                                      unsigned int *ret_bytes, const void *type,
                                                      void *engine);
int EVP_Digest(const void *data, size_t bytes, unsigned char *ret_digest, unsigned int *ret_bytes,
               const void *type, void *engine)
{
    count_digest(type, __builtin_return_address(0));
    return ((int (*)(const void *, size_t, unsigned char *, unsigned int *, const void *,
                     void *))next("EVP_Digest"))(data, bytes, ret_digest, ret_bytes, type, engine);
}

__attribute__((visibility("default"))) int EVP_DigestInit_ex(void *context, const void *type,
                                                             void *engine);
int EVP_DigestInit_ex(void *context, const void *type, void *engine)
{
    count_digest(type, __builtin_return_address(0));
    return ((int (*)(void *, const void *, void *))next("EVP_DigestInit_ex"))(context, type,
                                                                              engine);
}
