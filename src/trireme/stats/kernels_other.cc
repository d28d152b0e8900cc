// Processors other than x86-64 run the portable version.
#include "trireme/stats/kernels.h"

namespace trireme::stats {

std::vector<const Kernels*> runnable_kernels() {
  return {&kPortableKernels};
}
const Kernels& kernels() {
  return kPortableKernels;
}

}  // namespace trireme::stats
