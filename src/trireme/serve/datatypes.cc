#include "trireme/serve/datatypes.h"

#include <array>
#include <limits>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/serve/values.h"

namespace trireme::serve {
namespace {

using spec::Dtype;
constexpr std::array<std::pair<Dtype, std::string_view>, 13> kNames{{
    {Dtype::boolean, "BOOL"},
    {Dtype::u8, "UINT8"},
    {Dtype::u16, "UINT16"},
    {Dtype::u32, "UINT32"},
    {Dtype::u64, "UINT64"},
    {Dtype::i8, "INT8"},
    {Dtype::i16, "INT16"},
    {Dtype::i32, "INT32"},
    {Dtype::i64, "INT64"},
    {Dtype::f16, "FP16"},
    {Dtype::f32, "FP32"},
    {Dtype::f64, "FP64"},
    {Dtype::bf16, "BF16"},
}};

}  // namespace

std::string_view datatype_name(Dtype dtype) {
  for (const auto& [known, text] : kNames)
    if (known == dtype) return text;
  return "";
}

std::optional<Dtype> datatype_from_name(std::string_view name) {
  for (const auto& [dtype, text] : kNames)
    if (text == name) return dtype;
  return std::nullopt;
}

size_t tensor_bytes(const spec::Shape& shape, Dtype dtype, const std::string& where) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  int64_t bytes = static_cast<int64_t>(spec::size_of(dtype));
  bool empty = false;
  for (const int64_t size : shape) {
    TRIREME_CHECK(size >= 0);
    empty |= size == 0;
    if (size > 0 && bytes > kMost / size)
      throw RequestError(Reason::invalid, cat(where, "'shape' ", spec::to_text(shape), " is too large"));
    if (size > 0) bytes *= size;
  }
  return empty ? 0 : static_cast<size_t>(bytes);
}

}  // namespace trireme::serve
