#include "trireme/train/optimizer_torch.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/real.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::train {
namespace {

using testing::HasSubstr;

const std::vector<std::vector<double>> kGradients{
    {0.1, -0.2, 0.3}, {1.0, 0.5, -0.25}, {-0.75, 0.0, 2.0}, {0.01, -3.0, 0.125}};

at::Tensor vector(std::vector<double> values, at::ScalarType type = at::kDouble) {
  return at::tensor(values, at::kDouble).to(type);
}
at::Tensor start(at::ScalarType type = at::kDouble) {
  return vector({0.5, -1.25, 2.0}, type).set_requires_grad(true);
}

// Four steps from `start`; the steps in `skip` have no gradient.
at::Tensor four_steps(const OptimOptions& options, at::ScalarType type = at::kDouble,
                      std::vector<int> skip = {}) {
  const at::Tensor p = start(type);
  const auto optimizer = make_optimizer(options, {{"p", p}});
  for (int i = 0; i < 4; ++i) {
    const bool skipped = std::find(skip.begin(), skip.end(), i) != skip.end();
    optimizer->step({0}, {skipped ? at::Tensor() : vector(kGradients[i], type)}, 1);
  }
  return p.detach();
}

void expect_near(const at::Tensor& got, std::vector<double> want, double tolerance = 1e-14) {
  const at::Tensor values = got.to(at::kDouble).contiguous();
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(values.const_data_ptr<double>()[i], want[i], tolerance) << "element " << i;
  }
}

// The expected numbers are those of torch.optim 2.13 (SGD, Adam, AdamW; not fused) in float64 with these
// inputs.
TEST(Optimizer, SgdMatchesTorch) {
  expect_near(four_steps({.kind = "sgd"}), {0.49964, -1.2473, 1.9978250000000002});
  expect_near(four_steps({.kind = "sgd", .lr = 0.1}), {0.464, -0.98, 1.7825});
  expect_near(four_steps({.kind = "sgd", .lr = 0.1, .weight_decay = 0.1}),
              {0.445835015, -0.9303440325, 1.70608555});
  expect_near(four_steps({.kind = "sgd", .lr = 0.1, .momentum = 0.9}),
              {0.3361099999999999, -1.0167199999999998, 1.57208});
  expect_near(four_steps({.kind = "sgd", .lr = 0.1, .momentum = 0.9, .dampening = 0.5}),
              {0.40086, -1.0989699999999998, 1.7344549999999999});
  expect_near(four_steps({.kind = "sgd", .lr = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1}),
              {0.26701039703149987, -0.62140100706825, 1.1719805846049998});
}

TEST(Optimizer, AdamMatchesTorch) {
  expect_near(four_steps({.kind = "adam"}), {0.4979741376222824, -1.2492614650526452, 1.9977764010405306});
  expect_near(four_steps({.kind = "adam", .lr = 0.1, .betas = {0.8, 0.99}, .eps = 1e-6, .weight_decay = 0.1}),
              {0.29076052164388694, -1.1005082129287334, 1.7016298744677152});
}

TEST(Optimizer, AdamWMatchesTorch) {
  expect_near(four_steps({.kind = "adamw"}), {0.4979541852408013, -1.2492114835397414, 1.9976964393290082});
  expect_near(four_steps({.kind = "adamw", .lr = 0.1, .weight_decay = 0.3}),
              {0.25391589981714796, -1.0378562241787945, 1.5590816297638763});
}

TEST(Optimizer, SkipsAParameterWithoutGradientAsTorchDoes) {
  expect_near(four_steps({.kind = "sgd", .lr = 0.1, .momentum = 0.9, .dampening = 0.5}, at::kDouble, {0, 2}),
              {0.3095, -1.195, 2.04125});
  expect_near(four_steps({.kind = "adam", .lr = 0.1}, at::kDouble, {0, 2}),
              {0.332253058026447, -1.2876081316433887, 2.1266336986182672});
}

// Parameters long enough for the kernels' vector paths, which differ from what three elements see.
TEST(Optimizer, TakesEveryFloatingType) {
  const std::map<at::ScalarType, double> tolerance{
      {at::kFloat, 1e-6}, {at::kHalf, 6e-3}, {at::kBFloat16, 4e-2}};
  for (const char* kind : {"sgd", "adam", "adamw"}) {
    const bool sgd = kind == std::string("sgd");
    const OptimOptions options{.kind = kind,
                               .lr = 0.05,
                               .momentum = sgd ? 0.9 : 0,
                               .nesterov = sgd,
                               .eps = 1e-4,
                               .weight_decay = 0.1};
    const auto long_run = [&](at::ScalarType type) {
      const at::Tensor p = at::arange(100, at::kDouble).div(50).sub(1).to(type);
      const at::Tensor gradient = at::arange(100, at::kDouble).add(40).div(40).to(type);
      const auto optimizer = make_optimizer(options, {{"p", p}});
      for (int i = 0; i < 5; ++i) optimizer->step({0}, {gradient}, 1);
      return p.to(at::kDouble);
    };
    const at::Tensor want = long_run(at::kDouble);
    for (const auto& [type, bound] : tolerance) {
      EXPECT_LT(long_run(type).sub(want).abs().max().item().toDouble(), bound) << kind << " " << type;
    }
  }
}

TEST(Optimizer, TreatsComplexParametersAsPairsOfReals) {
  const at::Tensor p = at::complex(vector({0.5, 2.0}), vector({-1.25, 1.0})).set_requires_grad(true);
  const auto optimizer = make_optimizer({.kind = "adam"}, {{"p", p}});
  for (const auto& g : kGradients) {
    optimizer->step({0}, {at::complex(vector({g[0], g[2]}), vector({g[1], 0.0}))}, 1);
  }
  const at::NoGradGuard no_grad;
  expect_near(at::real(p.detach()), {0.4979741376222824, 1.9977764010405306});
  expect_near(at::imag(p.detach()), {-1.2492614650526452, 1.0});
}

TEST(Optimizer, LayoutOfGradientAndParameterMayDiffer) {
  // A transposed parameter with a row-major gradient, and a parameter that is a slice with holes.
  const at::Tensor plain = at::arange(6, at::kDouble).view({2, 3});
  const at::Tensor gradient = plain.sub(2.5);
  const at::Tensor transposed = plain.t().contiguous().t();
  const at::Tensor sliced = at::zeros({2, 6}, at::kDouble).slice(1, 0, 6, 2);
  sliced.copy_(plain);
  const auto optimizer =
      make_optimizer({.kind = "adamw", .lr = 0.1}, {{"a", plain}, {"b", transposed}, {"c", sliced}});
  for (int i = 0; i < 3; ++i) optimizer->step({0, 1, 2}, {gradient, gradient, gradient}, 1);
  EXPECT_FALSE(transposed.is_contiguous());
  EXPECT_TRUE(at::equal(transposed, plain));
  EXPECT_TRUE(at::equal(sliced, plain));
}

TEST(Optimizer, EmptyAndScalarParameters) {
  const at::Tensor empty = at::empty({0, 3}, at::kFloat), scalar = at::ones({}, at::kFloat);
  const auto optimizer = make_optimizer({.kind = "adam", .lr = 0.1}, {{"empty", empty}, {"scalar", scalar}});
  optimizer->step({0, 1}, {at::empty({0, 3}, at::kFloat), at::ones({}, at::kFloat)}, 1);
  EXPECT_NEAR(scalar.item().toDouble(), 0.9, 1e-6);
}

TEST(Optimizer, DisjointSetsGiveTheSameResultAsOneCall) {
  for (const char* kind : {"sgd", "adam"}) {
    const OptimOptions options{.kind = kind, .lr = 0.1, .momentum = 0.9};
    const at::Tensor a = start(), b = start(), c = start(), d = start();
    const auto together = make_optimizer(options, {{"a", a}, {"b", b}});
    const auto apart = make_optimizer(options, {{"a", c}, {"b", d}});
    for (const auto& g : kGradients) {
      together->step({0, 1}, {vector(g), vector(g).mul(2)}, 0.5);
      apart->step({1}, {vector(g).mul(2)}, 0.5);
      apart->step({0}, {vector(g)}, 0.5);
    }
    EXPECT_TRUE(at::equal(a, c));
    EXPECT_TRUE(at::equal(b, d));
  }
}

TEST(Optimizer, LearningRateFactorMultiplies) {
  const at::Tensor a = start(), b = start();
  make_optimizer({.kind = "sgd", .lr = 0.2}, {{"a", a}})->step({0}, {vector(kGradients[0])}, 0.25);
  make_optimizer({.kind = "sgd", .lr = 0.05}, {{"b", b}})->step({0}, {vector(kGradients[0])}, 1);
  EXPECT_TRUE(at::equal(a, b));
}

TEST(Optimizer, GroupsAndNoDecayByPattern) {
  const at::Tensor weight = start(), bias = start(), head = start();
  OptimOptions options{.kind = "sgd", .lr = 0.1, .weight_decay = 0.5, .no_decay = {"bias$"}};
  options.groups = {{.match = "^head", .lr = 0.01}, {.match = "head|other", .lr = 9.0}};
  const auto optimizer =
      make_optimizer(options, {{"body.weight", weight}, {"body.bias", bias}, {"head.weight", head}});
  EXPECT_EQ(optimizer->lr(0), 0.1);
  EXPECT_EQ(optimizer->lr(2), 0.01) << "the first match wins";
  const at::Tensor zero = vector({0, 0, 0});
  optimizer->step({0, 1, 2}, {zero, zero, zero}, 1);
  expect_near(weight.detach(), {0.475, -1.1875, 1.9});
  expect_near(bias.detach(), {0.5, -1.25, 2.0});
  expect_near(head.detach(), {0.4975, -1.24375, 1.99});
}

std::string message_of(const std::function<void()>& body, ErrorCode code) {
  try {
    body();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code);
    return e.what();
  }
  return "no error";
}

TEST(Optimizer, NamesPatternsThatAreWrong) {
  EXPECT_THAT(message_of(
                  [] {
                    make_optimizer({.no_decay = {"nothing"}}, {{"body.weight", start()}});
                  },
                  ErrorCode::usage),
              testing::AllOf(HasSubstr("optim.no_decay"), HasSubstr("nothing"), HasSubstr("body.weight")));
  OptimOptions options;
  options.groups = {{.match = "(["}};
  EXPECT_THAT(message_of(
                  [&] {
                    make_optimizer(options, {{"w", start()}});
                  },
                  ErrorCode::usage),
              HasSubstr("optim.group.match"));
}

TEST(Optimizer, SavedStateContinuesExactly) {
  for (const char* kind : {"sgd", "adam", "adamw"}) {
    const OptimOptions options{.kind = kind, .lr = 0.1, .momentum = 0.9, .dampening = 0.5};
    const at::Tensor whole = four_steps(options);
    const at::Tensor p = start();
    const auto first = make_optimizer(options, {{"p", p}});
    for (int i = 0; i < 2; ++i) first->step({0}, {vector(kGradients[i])}, 1);
    std::map<std::string, at::Tensor> saved;
    for (const auto& [name, tensor] : first->state()) saved[name] = tensor.clone();
    const at::Tensor q = p.detach().clone();
    const auto second = make_optimizer(options, {{"p", q}});
    second->load_state(saved);
    for (int i = 2; i < 4; ++i) second->step({0}, {vector(kGradients[i])}, 1);
    EXPECT_TRUE(at::equal(q, whole)) << kind;
  }
}

TEST(Optimizer, NamesWrongState) {
  const auto optimizer = make_optimizer({.kind = "adam"}, {{"p", start()}});
  auto state = optimizer->state();
  auto missing = state;
  missing.erase("p.exp_avg_sq");
  EXPECT_THAT(message_of([&] { optimizer->load_state(missing); }, ErrorCode::input),
              HasSubstr("'p.exp_avg_sq' is missing"));
  auto extra = state;
  extra["q.exp_avg"] = start();
  EXPECT_THAT(message_of([&] { optimizer->load_state(extra); }, ErrorCode::input), HasSubstr("'q.exp_avg'"));
  auto misshaped = state;
  misshaped["p.exp_avg"] = at::ones({4}, at::kDouble);
  EXPECT_THAT(message_of([&] { optimizer->load_state(misshaped); }, ErrorCode::input),
              testing::AllOf(HasSubstr("p.exp_avg"), HasSubstr("[4]"), HasSubstr("[3]")));
}

}  // namespace
}  // namespace trireme::train
