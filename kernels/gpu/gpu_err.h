/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_err.h: the one map from CUDA's errors to embtier's. Only for use inside kernels/, in builds
 * with CUDA. */
#ifndef EMBTIER_KERNELS_GPU_GPU_ERR_H
#define EMBTIER_KERNELS_GPU_GPU_ERR_H

#include <cuda_runtime_api.h>

#include "base/embtier_err.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Also makes CUDA forget the error, which it would otherwise report again for the next launch. */
enum embtier_err gpu_err(cudaError_t error);

#ifdef __cplusplus
}
#endif
#endif
