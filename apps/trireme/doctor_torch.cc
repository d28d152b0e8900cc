#include <ATen/detail/CUDAHooksInterface.h>
#include <torch/headeronly/version.h>

#include "doctor.h"
#include "gpus.h"
#include "trireme/base/error.h"

namespace trireme::app {

std::vector<Finding> check_torch() {
  const int devices = gpu_count();
  return {{"torch", true, TORCH_VERSION},
          {"cuda", true,
           devices > 0 ? cat(devices, " devices")
           : at::detail::getCUDAHooks().hasCUDA()
               ? "no device"
               : "not in this torch wheel or no driver; training runs on the CPU"}};
}

}  // namespace trireme::app
