/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs, streams and memory, directly from CUDA's runtime. The runtime is linked statically and
 * looks for the driver at the first call, so a program also runs on a machine without one. */
#include <cuda_runtime_api.h>

#include "kernels/gpu/gpu.h"
#include "kernels/gpu/gpu_err.h"

/* kernels/gpu/meson.build builds code for this compute capability; newer GPUs run it too. */
#define CAPABILITY_MAJOR_MIN 8

uint32_t gpu_is_there(void)
{
    uint32_t usable_count = 0;
    int count = 0;

    if (gpu_err(cudaGetDeviceCount(&count)) != EMBTIER_OK)
        return 0;
    for (int i = 0; i < count; i++) {
        int major = 0;

        if (gpu_err(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, i)) ==
                EMBTIER_OK &&
            major >= CAPABILITY_MAJOR_MIN)
            usable_count++;
    }
    return usable_count;
}

enum embtier_err gpu_stream_new(struct gpu_stream **ret_stream)
{
    cudaStream_t stream;

    TRY(gpu_err(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)));
    *ret_stream = (struct gpu_stream *)stream;
    return EMBTIER_OK;
}

void gpu_stream_free(struct gpu_stream *stream)
{
    if (stream)
        (void)gpu_err(cudaStreamDestroy((cudaStream_t)stream));
}

enum embtier_err gpu_stream_wait(struct gpu_stream *stream)
{
    return gpu_err(cudaStreamSynchronize((cudaStream_t)stream));
}

enum embtier_err gpu_memory_new(uint64_t bytes, void **ret_memory)
{
    void *memory = NULL;

    TRY(gpu_err(cudaMalloc(&memory, bytes)));
    *ret_memory = memory;
    return EMBTIER_OK;
}

void gpu_memory_free(void *memory)
{
    if (memory)
        (void)gpu_err(cudaFree(memory));
}

enum embtier_err gpu_memory_write(void *device, const void *from, uint64_t bytes,
                                  struct gpu_stream *stream)
{
    TRY(gpu_err(
        cudaMemcpyAsync(device, from, bytes, cudaMemcpyHostToDevice, (cudaStream_t)stream)));
    return gpu_stream_wait(stream);
}

enum embtier_err gpu_memory_read(const void *device, uint64_t bytes, struct gpu_stream *stream,
                                 void *ret_bytes)
{
    TRY(gpu_err(
        cudaMemcpyAsync(ret_bytes, device, bytes, cudaMemcpyDeviceToHost, (cudaStream_t)stream)));
    return gpu_stream_wait(stream);
}
