#include "trireme/tensor/adaptor_torch.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::tensor {
namespace {

using testing::HasSubstr;

TEST(Adaptor, EveryElementTypeGoesThereAndBack) {
  for (int i = 0; i <= static_cast<int>(spec::Dtype::f8_e5m2); ++i) {
    const auto dtype = static_cast<spec::Dtype>(i);
    EXPECT_EQ(from_torch(to_torch(dtype)), dtype);
    EXPECT_EQ(c10::elementSize(to_torch(dtype)), spec::size_of(dtype));
  }
  EXPECT_THROW(from_torch(at::kComplexHalf), Error);
}

TEST(Adaptor, AViewIsTheTensorsMemory) {
  const at::Tensor tensor = at::arange(6, at::kFloat).reshape({2, 3});
  const auto view = view_of(tensor);
  EXPECT_EQ(view.size, 6);
  EXPECT_EQ(view.dtype, spec::Dtype::f32);
  view.as<float>()[4] = 40;
  EXPECT_EQ(tensor[1][1].item<float>(), 40);
}

TEST(Adaptor, ATensorOverMemoryDoesNotCopy) {
  const Buffer buffer(6, spec::Dtype::i64);
  const at::Tensor tensor = tensor_over(buffer.view(), {3, 2});
  tensor.fill_(5);
  EXPECT_EQ(buffer.view().as<int64_t>()[5], 5);
}

ErrorCode code_of(const std::function<void()>& body, std::string& message) {
  try {
    translate_torch_errors("here", body);
  } catch (const Error& e) {
    message = e.what();
    return e.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::internal;
}

TEST(Adaptor, TorchErrorsBecomeOneLineWithContext) {
  std::string message;
  EXPECT_EQ(code_of([] { at::matmul(at::zeros({2, 3}), at::zeros({2, 3})); }, message), ErrorCode::internal);
  EXPECT_THAT(message, testing::StartsWith("here: "));
  EXPECT_THAT(message, Not(HasSubstr("\n")));
}

TEST(Adaptor, AnIndexOutOfRangeIsWrongInput) {
  std::string message;
  const auto look_up = [] { at::embedding(at::zeros({4, 2}), at::arange(5, at::kLong)); };
  EXPECT_EQ(code_of(look_up, message), ErrorCode::input);
}

TEST(Adaptor, OurOwnErrorsPassUnchanged) {
  std::string message;
  EXPECT_EQ(code_of([] { fail(ErrorCode::usage, "mine"); }, message), ErrorCode::usage);
  EXPECT_EQ(message, "mine");
}

}  // namespace
}  // namespace trireme::tensor
