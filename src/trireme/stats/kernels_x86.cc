// Which of the x86-64 versions this processor runs; kernels_other.cc is its counterpart elsewhere.
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "trireme/stats/kernels.h"

namespace trireme::stats {
namespace {

// The processor has integer tiles and Linux (5.16 or newer) lets this process use them.
bool may_use_amx() {
  constexpr unsigned kTile = 1u << 24, kInt8 = 1u << 25;       // leaf 7, edx
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (kTile | kInt8)) != (kTile | kInt8)) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Built here, not in kernels_amx.cc, whose start-up code would run on every processor.
const Kernels& amx_kernels() {
  static const Kernels kernels = [] {
    Kernels k = kAvx512Kernels;
    k.name = "amx";
    k.code_products = &amx_code_products;
    return k;
  }();
  return kernels;
}

}  // namespace

std::vector<const Kernels*> runnable_kernels() {
  std::vector<const Kernels*> found{&kPortableKernels};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt")) found.push_back(&kAvx2Kernels);
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vbmi") || !__builtin_cpu_supports("avx512vpopcntdq"))
    return found;
  found.push_back(&kAvx512Kernels);
  if (may_use_amx()) found.push_back(&amx_kernels());
  return found;
}

const Kernels& kernels() {
  static const Kernels& fastest = *runnable_kernels().back();
  return fastest;
}

}  // namespace trireme::stats
