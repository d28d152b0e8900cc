#include "trireme/spec/dtype.h"

#include <array>

#include "trireme/base/error.h"

namespace trireme::spec {
namespace {

struct Facts {
  Dtype dtype;
  size_t size;
  std::string_view name, safetensors;
};

// In the order of the enumeration, so that a dtype is its index.
constexpr std::array kFacts{
    Facts{Dtype::u8, 1, "u8", "U8"},
    Facts{Dtype::i8, 1, "i8", "I8"},
    Facts{Dtype::i16, 2, "i16", "I16"},
    Facts{Dtype::i32, 4, "i32", "I32"},
    Facts{Dtype::i64, 8, "i64", "I64"},
    Facts{Dtype::f16, 2, "f16", "F16"},
    Facts{Dtype::f32, 4, "f32", "F32"},
    Facts{Dtype::f64, 8, "f64", "F64"},
    Facts{Dtype::bf16, 2, "bf16", "BF16"},
    Facts{Dtype::c64, 8, "c64", "C64"},
    Facts{Dtype::c128, 16, "c128", "C128"},
    Facts{Dtype::boolean, 1, "bool", "BOOL"},
    Facts{Dtype::u16, 2, "u16", "U16"},
    Facts{Dtype::u32, 4, "u32", "U32"},
    Facts{Dtype::u64, 8, "u64", "U64"},
    Facts{Dtype::f8_e4m3, 1, "f8_e4m3", "F8_E4M3"},
    Facts{Dtype::f8_e5m2, 1, "f8_e5m2", "F8_E5M2"},
};

const Facts& facts(Dtype dtype) {
  const auto index = static_cast<size_t>(dtype);
  TRIREME_CHECK(index < kFacts.size() && kFacts[index].dtype == dtype);
  return kFacts[index];
}

Dtype find(std::string_view text, std::string_view Facts::*spelling) {
  std::string known;
  for (const auto& f : kFacts) {
    if (f.*spelling == text) return f.dtype;
    known += cat(known.empty() ? "" : ", ", f.*spelling);
  }
  fail(ErrorCode::input, "unknown element type '", text, "'; known are ", known);
}

}  // namespace

size_t size_of(Dtype dtype) {
  return facts(dtype).size;
}
std::string_view name(Dtype dtype) {
  return facts(dtype).name;
}
std::string_view safetensors_name(Dtype dtype) {
  return facts(dtype).safetensors;
}
Dtype dtype_from_name(std::string_view name) {
  return find(name, &Facts::name);
}
Dtype dtype_from_safetensors(std::string_view name) {
  return find(name, &Facts::safetensors);
}

int64_t count(const Shape& shape) {
  int64_t product = 1;
  bool overflow = false, empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0) fail(ErrorCode::input, "negative extent in shape ", to_text(shape));
    if (extent == 0) empty = true;
    if (extent != 0) overflow |= __builtin_mul_overflow(product, extent, &product);
  }
  if (empty) return 0;
  if (overflow) fail(ErrorCode::input, "shape ", to_text(shape), " has more elements than can be counted");
  return product;
}

std::string to_text(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += cat(i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

}  // namespace trireme::spec
