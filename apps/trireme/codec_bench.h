#pragma once
// trireme codec bench: rates of encode and decode beside memcpy.
#include <string>

namespace trireme::app {

struct CodecBenchArguments {
  std::string codec;           // empty: all
  std::string size = "64MiB";  // of the gradients
  std::string in;              // float32 values, repeated to the size; empty: drawn ones
  int rounds = 7;              // alternating measurements of memcpy, encode and decode
  bool json = false;
};
int run_codec_bench(const CodecBenchArguments& arguments);

}  // namespace trireme::app
