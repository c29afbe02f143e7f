/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/ops/op_table.h"

#include <stddef.h>

#include "base/macros.h"
#include "proto/ops.h"

/* To add an operation, add its row. Tests build a copy of this file with one more. */
#ifdef OP_OF_TESTS
extern const struct op OP_OF_TESTS;
#define ROW_OF_TESTS [OP_LAST + 1] = &OP_OF_TESTS,
#else
#define ROW_OF_TESTS
#endif

/* clang-format off */
static const struct op *const ops[] = {
    [OP_GET] = &op_get,
    [OP_SET] = &op_set,
    [OP_POOL] = &op_pool,
    [OP_PUSH] = &op_push,
    [OP_RELEASE] = &op_release,
    [OP_PREFETCH] = &op_prefetch,
    ROW_OF_TESTS
};
/* clang-format on */

const struct op *op_of(uint32_t number)
{
    return number < ARRAY_LEN(ops) ? ops[number] : NULL;
}

uint32_t op_last(void)
{
    return ARRAY_LEN(ops) - 1;
}
