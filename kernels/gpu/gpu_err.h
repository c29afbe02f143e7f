/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_err.h: the one map from CUDA's errors to embtier's. Inside kernels/ only, built with CUDA
 * only. */
#ifndef EMBTIER_KERNELS_GPU_GPU_ERR_H
#define EMBTIER_KERNELS_GPU_GPU_ERR_H

#include <cuda_runtime_api.h>

#include "base/embtier_err.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes CUDA forget the error too, which it would else report of the next launch as well. */
enum embtier_err gpu_err(cudaError_t error);

#ifdef __cplusplus
}
#endif
#endif
