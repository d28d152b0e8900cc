#include "trireme/graph/input_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::graph {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// x: f32[s77, 4], y: i64[s77, Mul(2, s77)], n: an integer of 1 or more.
spec::Graph example() {
  using spec::ValueKind;
  spec::Graph graph;
  graph.values = {
      {"x", ValueKind::tensor, spec::Dtype::f32, {{3, "s77"}, {4, ""}}, {}, {}, false, {}},
      {"y", ValueKind::tensor, spec::Dtype::i64, {{3, "s77"}, {6, "Mul(2, s77)"}}, {}, {}, false, {}},
      {"n", ValueKind::sym_int, spec::Dtype::f32, {}, {}, {}, false, {5, "s1"}},
      {"w", ValueKind::tensor, spec::Dtype::f32, {{9, ""}}, {}, {}, false, {}}};
  graph.inputs = {{spec::InputKind::parameter, 3, "w"},
                  {spec::InputKind::user, 0, "x"},
                  {spec::InputKind::literal, spec::kNoValue, "flag"},
                  {spec::InputKind::user, 1, "y"},
                  {spec::InputKind::user, 2, "n"}};
  graph.ranges = {{"s77", {3, 64}}, {"s1", {1, std::nullopt}}};
  return graph;
}

struct Inputs {
  spec::Shape x{5, 4}, y{5, 10};
  int64_t n = 3;
  spec::Dtype x_dtype = spec::Dtype::f32;
  std::vector<GivenInput> given() const {
    using spec::ValueKind;
    return {{ValueKind::tensor, x_dtype, x},
            {ValueKind::tensor, spec::Dtype::i64, y},
            {ValueKind::sym_int, {}, {}, n}};
  }
};

void expect_refused(const Inputs& inputs, const std::string& what) {
  const InputCheck check(example());
  EXPECT_THAT([&] { check(inputs.given()); }, ThrowsMessage<Error>(HasSubstr(what)));
}

TEST(InputCheck, AcceptsWhatTheExportAllows) {
  const InputCheck check(example());
  const Inputs usual, largest{.x = {64, 4}, .y = {64, 128}, .n = 1};
  check(usual.given());
  check(largest.given());
}

TEST(InputCheck, AMinimumOfTwoIsTorchExportsAssumptionOnly) {
  spec::Graph graph = example();
  graph.ranges["s77"].minimum = 2;
  const InputCheck check(graph);
  const Inputs single{.x = {1, 4}, .y = {1, 2}};
  check(single.given());
}

TEST(InputCheck, NamesTheDimensionAndWhatIsAllowed) {
  expect_refused({.x = {5, 3}}, "input 'x', dimension 1 is 3, the model takes only 4");
  expect_refused({.x = {65, 4}, .y = {65, 130}}, "input 'x', dimension 0 is 65, allowed is 3 to 64");
  expect_refused({.x = {1, 4}, .y = {1, 2}}, "allowed is 3 to 64");
  expect_refused({.y = {6, 10}},
                 "input 'y', dimension 0 is 6, but must equal input 'x', dimension 0, which is 5");
  expect_refused({.y = {5, 11}}, "input 'y', dimension 1 is 11, but must be Mul(2, s77) = 10");
  expect_refused({.n = 0}, "input 'n' is 0, allowed is at least 1");
}

TEST(InputCheck, NamesWrongKindsAndCounts) {
  expect_refused({.x = {5}}, "input 'x' has 1 dimensions, the model takes 2");
  expect_refused({.x_dtype = spec::Dtype::i64}, "input 'x' has elements of type i64, the model takes f32");
  const InputCheck check(example());
  const Inputs inputs;
  auto given = inputs.given();
  std::swap(given[1], given[2]);
  EXPECT_THAT([&] { check(given); },
              ThrowsMessage<Error>(HasSubstr("input 'y' is an integer, the model takes a tensor")));
  given.pop_back();
  EXPECT_THAT([&] { check(given); },
              ThrowsMessage<Error>(HasSubstr("2 inputs were given, the model takes 3: x, y, n")));
}

}  // namespace
}  // namespace trireme::graph
