#include <ATen/detail/CUDAHooksInterface.h>

#include "gpus.h"

namespace trireme::app {

int gpu_count() {
  const auto& cuda = at::detail::getCUDAHooks();
  return cuda.hasCUDA() ? cuda.deviceCount() : 0;
}

}  // namespace trireme::app
