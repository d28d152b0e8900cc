// libFuzzer's entry: make fuzz.
#include "trireme/transport/tcp/fuzz_for_tests.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  trireme::transport::tcp::fuzz_one({data, size});
  return 0;
}
