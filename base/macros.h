/* SPDX-License-Identifier: Apache-2.0 */
/* macros.h: the few language helpers that the whole tree uses. */
#ifndef EMBTIER_BASE_MACROS_H
#define EMBTIER_BASE_MACROS_H

#include <stddef.h>
#include <stdint.h>

#define MUST_CHECK        __attribute__((warn_unused_result))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))
#define LIKELY(x)         __builtin_expect(!!(x), 1)
#define UNLIKELY(x)       __builtin_expect(!!(x), 0)
#define ARRAY_LEN(a)      (sizeof(a) / sizeof((a)[0]))
#define CACHE_LINE        64

/* Runs @fn(&variable) when the variable goes out of scope. @fn accepts a pointer to NULL. */
#define _cleanup_(fn) __attribute__((cleanup(fn)))

/* Defines free-pointer helper `fn##p` for _cleanup_ from `void fn(type *)`. */
#define DEFINE_CLEANUP(type, fn)                                                                   \
    static inline void fn##p(type **p)                                                             \
    {                                                                                              \
        if (*p)                                                                                    \
            fn(*p);                                                                                \
    }

/* Moves ownership out of a _cleanup_ variable. */
#define TAKE(p)                                                                                    \
    ({                                                                                             \
        __typeof__(p) _taken = (p);                                                                \
        (p) = NULL;                                                                                \
        _taken;                                                                                    \
    })

/* Moves a descriptor out of a _cleanup_ variable. */
#define TAKE_FD(fd)                                                                                \
    ({                                                                                             \
        int _taken = (fd);                                                                         \
        (fd) = -1;                                                                                 \
        _taken;                                                                                    \
    })

/* Returns from the calling function if @call fails, with its error. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum embtier_err _try_err = (call);                                                        \
        if (UNLIKELY(_try_err != EMBTIER_OK))                                                      \
            return _try_err;                                                                       \
    } while (0)

/* The ending of a noun in a message: "1 row", "2 rows". */
#define PLURAL(count) ((count) == 1 ? "" : "s")

/* Each argument is evaluated once. The names are unique, so calls may be nested. */
#define MIN(a, b) PICK_(a, b, <, UNIQUE_(_a, __COUNTER__), UNIQUE_(_b, __COUNTER__))
#define MAX(a, b) PICK_(a, b, >, UNIQUE_(_a, __COUNTER__), UNIQUE_(_b, __COUNTER__))
#define PICK_(a, b, op, ua, ub)                                                                    \
    ({                                                                                             \
        __typeof__(a) ua = (a);                                                                    \
        __typeof__(b) ub = (b);                                                                    \
        ua op ub ? ua : ub;                                                                        \
    })
#define UNIQUE_(name, number)  UNIQUE__(name, number)
#define UNIQUE__(name, number) name##number

/* Returns the struct that holds @member at @ptr. */
#define CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/* @align is a power of two. */
static inline uint64_t align_up(uint64_t value, uint64_t align)
{
    return (value + align - 1) & ~(align - 1);
}

/* @value may be any number: it may come from a client. */
static inline uint64_t div_round_up(uint64_t value, uint64_t by)
{
    return value / by + (value % by != 0);
}

void freep(void *p);  /* for _cleanup_(freep) char *s */
void closep(int *fd); /* for _cleanup_(closep) int fd = -1 */

#endif
