#include "trireme/serve/request_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::serve {
namespace {

using spec::Dtype;
using ::testing::HasSubstr;

ModelInfo model() {
  ModelInfo m;
  m.name = "m";
  m.inputs = {{"tokens", Dtype::i64, {-1, -1}, {1, 4}}, {"scale", Dtype::f32, {-1, 2}, {1, 2}}};
  m.outputs = {{"y", Dtype::f32, {-1}, {}}};
  m.joinable = true;
  m.max_rows = 8;
  return m;
}

Tensor tensor(const std::string& name, Dtype dtype, spec::Shape shape) {
  return {name, dtype, std::move(shape), {}, nullptr};
}

InferRequest request(std::vector<Tensor> inputs) {
  InferRequest r;
  r.inputs = std::move(inputs);
  return r;
}

void expect_refused(InferRequest r, const std::string& part) {
  try {
    check_request(model(), r);
    ADD_FAILURE() << "accepted; expected " << part;
  } catch (const RequestError& e) {
    EXPECT_THAT(e.what(), HasSubstr(part));
  }
}

TEST(RequestCheck, OrdersInputsAndCountsRows) {
  auto r = request({tensor("scale", Dtype::f32, {3, 2}), tensor("tokens", Dtype::i64, {3, 5})});
  EXPECT_EQ(check_request(model(), r), 3);
  EXPECT_EQ(r.inputs[0].name, "tokens");
  EXPECT_EQ(join_key(model(), r), (std::vector<int64_t>{5}));
}

TEST(RequestCheck, NamesWhatIsWrong) {
  const auto scale = tensor("scale", Dtype::f32, {3, 2}), tokens = tensor("tokens", Dtype::i64, {3, 5});
  expect_refused(request({scale}), "input 'tokens' is missing");
  expect_refused(request({scale, tokens, tensor("mask", Dtype::f32, {1})}),
                 "input 'mask' is not one of the model: tokens, scale");
  expect_refused(request({scale, tokens, tokens}), "given twice");
  expect_refused(request({scale, tensor("tokens", Dtype::i32, {3, 5})}), "is INT32, the model takes INT64");
  expect_refused(request({tensor("scale", Dtype::f32, {3, 3}), tokens}),
                 "has shape [3, 3], the model takes [-1, 2]");
  expect_refused(request({tensor("scale", Dtype::f32, {3}), tokens}), "has shape [3]");
  expect_refused(request({tensor("scale", Dtype::f32, {2, 2}), tokens}), "has 2 rows, 'tokens' has 3");
  expect_refused(request({tensor("scale", Dtype::f32, {0, 2}), tensor("tokens", Dtype::i64, {0, 5})}),
                 "0 rows");
  expect_refused(request({tensor("scale", Dtype::f32, {9, 2}), tensor("tokens", Dtype::i64, {9, 5})}),
                 "takes 1 to 8");
  auto r = request({scale, tokens});
  r.outputs = {{"z", {}}};
  expect_refused(r, "output 'z' is not one of the model: y");
  r.outputs = {{"y", {}}, {"y", {}}};
  expect_refused(r, "asked for twice");
}

}  // namespace
}  // namespace trireme::serve
