/* SPDX-License-Identifier: Apache-2.0 */
/* init_params.h: a table's distribution in the form that the generator takes, for the loops of
 * init_rows and their CUDA twin. Only for use inside kernels/ and its tests. Thread: any. */
#ifndef EMBTIER_KERNELS_CPU_INIT_INIT_PARAMS_H
#define EMBTIER_KERNELS_CPU_INIT_INIT_PARAMS_H

#include <stdint.h>

#include "base/spec/table_spec.h"

#ifdef __cplusplus
extern "C" {
#endif

#define INIT_BLOCK_DIMS 4 /* numbers from one counter */

struct init_params {
    uint32_t key[2];
    float a;      /* low; mean; the constant */
    float b;      /* high - low; stddev */
    float lowest; /* results are clamped to these */
    float highest;
};

struct init_params init_params_of(const struct table_spec *spec);

#ifdef __cplusplus
}
#endif
#endif
