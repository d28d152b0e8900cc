#include <ATen/detail/CUDAHooksInterface.h>
#include <torch/headeronly/version.h>

#include "doctor.h"
#include "trireme/base/error.h"

namespace trireme::app {

std::vector<Finding> check_torch() {
  const auto& cuda = at::detail::getCUDAHooks();
  const int devices = cuda.hasCUDA() ? cuda.deviceCount() : 0;
  return {{"torch", true, TORCH_VERSION},
          {"cuda", true,
           devices > 0      ? cat(devices, " devices")
           : cuda.hasCUDA() ? "no device"
                            : "not in this torch wheel or no driver; training runs on the CPU"}};
}

}  // namespace trireme::app
