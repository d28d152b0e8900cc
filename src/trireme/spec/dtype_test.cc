#include "trireme/spec/dtype.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "trireme/base/error.h"

namespace trireme::spec {
namespace {

using testing::HasSubstr;
using testing::Property;
using testing::ThrowsMessage;

constexpr auto kLast = Dtype::f8_e5m2;

TEST(Dtype, NamesReadBackToTheSameType) {
  for (int i = 0; i <= static_cast<int>(kLast); ++i) {
    const auto dtype = static_cast<Dtype>(i);
    EXPECT_EQ(dtype_from_name(name(dtype)), dtype);
    EXPECT_EQ(dtype_from_safetensors(safetensors_name(dtype)), dtype);
    EXPECT_GT(size_of(dtype), 0U);
  }
}

TEST(Dtype, SizesAreThoseOfTheFormats) {
  EXPECT_EQ(size_of(Dtype::boolean), 1U);
  EXPECT_EQ(size_of(Dtype::bf16), 2U);
  EXPECT_EQ(size_of(Dtype::f32), 4U);
  EXPECT_EQ(size_of(Dtype::c128), 16U);
}

TEST(Dtype, UnknownNameListsTheKnownOnes) {
  EXPECT_THAT([] { dtype_from_safetensors("F4"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("'F4'"), HasSubstr("BF16"))));
  EXPECT_THROW(dtype_from_name("F32"), Error);
}

TEST(Shape, CountsElements) {
  EXPECT_EQ(count({}), 1);
  EXPECT_EQ(count({3, 4}), 12);
  EXPECT_EQ(count({3, 0, 4}), 0);
}

TEST(Shape, RefusesNegativeExtentsAndOverflow) {
  constexpr auto kLarge = std::numeric_limits<int64_t>::max();
  EXPECT_THROW(count({3, -1}), Error);
  EXPECT_THROW(count({0, -1}), Error);
  EXPECT_THROW(count({kLarge, 2}), Error);
  // No elements, whatever the other extents are.
  EXPECT_EQ(count({kLarge, kLarge, 0}), 0);
}

TEST(Shape, PrintsAsAList) {
  EXPECT_EQ(to_text(Shape{2, 3}), "[2, 3]");
  EXPECT_EQ(to_text(Shape{}), "[]");
}

}  // namespace
}  // namespace trireme::spec
