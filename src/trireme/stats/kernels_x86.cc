// Which of the x86-64 versions this processor runs; kernels_other.cc is its counterpart elsewhere.
#include "trireme/stats/kernels.h"

namespace trireme::stats {

std::vector<const Kernels*> runnable_kernels() {
  std::vector<const Kernels*> found{&kPortableKernels};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt")) found.push_back(&kAvx2Kernels);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vpopcntdq"))
    found.push_back(&kAvx512Kernels);
  return found;
}

const Kernels& kernels() {
  static const Kernels& fastest = *runnable_kernels().back();
  return fastest;
}

}  // namespace trireme::stats
