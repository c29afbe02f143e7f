/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/gpu/gpu_err.h"

#include "base/macros.h"

static const struct {
    cudaError_t error;
    enum embtier_err err;
} errors[] = {
    { cudaErrorMemoryAllocation, EMBTIER_NO_MEMORY },
    { cudaErrorInvalidValue, EMBTIER_INVALID },
    { cudaErrorInvalidDevicePointer, EMBTIER_INVALID },
    { cudaErrorInvalidResourceHandle, EMBTIER_INVALID },
    { cudaErrorNoDevice, EMBTIER_UNSUPPORTED },
    { cudaErrorInvalidDevice, EMBTIER_UNSUPPORTED },
    { cudaErrorInsufficientDriver, EMBTIER_UNSUPPORTED },
    { cudaErrorSystemDriverMismatch, EMBTIER_UNSUPPORTED },
    { cudaErrorCompatNotSupportedOnDevice, EMBTIER_UNSUPPORTED },
    { cudaErrorStubLibrary, EMBTIER_UNSUPPORTED },
    { cudaErrorInitializationError, EMBTIER_UNSUPPORTED }, /* a driver without a GPU that answers */
    { cudaErrorNoKernelImageForDevice, EMBTIER_UNSUPPORTED },
    { cudaErrorInvalidDeviceFunction, EMBTIER_UNSUPPORTED },
    { cudaErrorUnsupportedPtxVersion, EMBTIER_UNSUPPORTED },
    { cudaErrorJitCompilerNotFound, EMBTIER_UNSUPPORTED },
    { cudaErrorNotSupported, EMBTIER_UNSUPPORTED },
    { cudaErrorDevicesUnavailable, EMBTIER_BUSY }, /* all GPUs are taken, in exclusive mode */
    { cudaErrorSystemNotReady, EMBTIER_BUSY },
    { cudaErrorNotReady, EMBTIER_AGAIN },
    { cudaErrorNotPermitted, EMBTIER_PERMISSION },
    { cudaErrorLaunchTimeout, EMBTIER_TIMEOUT },
    { cudaErrorECCUncorrectable, EMBTIER_IO },
    { cudaErrorNvlinkUncorrectable, EMBTIER_IO },
    { cudaErrorCudartUnloading, EMBTIER_SHUTDOWN },
};

enum embtier_err gpu_err(cudaError_t error)
{
    if (LIKELY(error == cudaSuccess))
        return EMBTIER_OK;
    (void)cudaGetLastError();
    for (size_t i = 0; i < ARRAY_LEN(errors); i++)
        if (errors[i].error == error)
            return errors[i].err;
    return EMBTIER_INTERNAL;
}
