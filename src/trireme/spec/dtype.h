#pragma once
// Element types, named as in safetensors and PyTorch.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::spec {

enum class Dtype : uint8_t {
  u8,
  i8,
  i16,
  i32,
  i64,
  f16,
  f32,
  f64,
  bf16,
  c64,
  c128,
  boolean,
  u16,
  u32,
  u64,
  f8_e4m3,
  f8_e5m2
};

size_t size_of(Dtype dtype);         // bytes per element
std::string_view name(Dtype dtype);  // "f32", "i64", …
// Error(input) for an unknown name.
Dtype dtype_from_name(std::string_view name);
// safetensors spelling: "F32", "BF16", "I64", "BOOL", …
std::string_view safetensors_name(Dtype dtype);
Dtype dtype_from_safetensors(std::string_view name);

using Shape = std::vector<int64_t>;
// Product of the extents; Error(input) on a negative extent or overflow.
int64_t count(const Shape& shape);
std::string to_text(const Shape& shape);  // "[2, 3]"

}  // namespace trireme::spec
