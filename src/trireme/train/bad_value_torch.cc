#include "trireme/train/bad_value_torch.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/isposinf.h>

#include <algorithm>
#include <optional>

#include "trireme/base/error.h"

namespace trireme::train {
namespace {

enum class Bad : uint8_t { none, minus_infinity, infinity, nan };

Bad inspect(const at::Tensor& t) {
  if (!t.defined() || !(t.is_floating_point() || t.is_complex()) || t.is_sparse()) return Bad::none;
  if (at::isfinite(t).all().item().toBool()) return Bad::none;
  if (at::isnan(t).any().item().toBool()) return Bad::nan;
  if (t.is_complex() || at::isposinf(t).any().item().toBool()) return Bad::infinity;
  return Bad::minus_infinity;
}

const char* describe(Bad bad) {
  return bad == Bad::nan ? "NaN" : bad == Bad::infinity ? "Inf" : "-Inf";
}

std::string describe(const spec::Node& node, Bad bad) {
  std::string text = cat("the output of node ", node.name, " (", node.target, ") holds ", describe(bad));
  if (!node.module_path.empty()) text += cat(", module ", node.module_path);
  if (!node.source_line.empty()) text += cat(", ", node.source_line);
  return text;
}

// The worst value among an operator's outputs, which may be tensors or lists of them.
Bad inspect(const std::vector<c10::IValue>& outputs) {
  Bad worst = Bad::none;
  for (const c10::IValue& value : outputs) {
    if (value.isTensor()) worst = std::max(worst, inspect(value.toTensor()));
    if (!value.isTensorList()) continue;
    for (const at::Tensor& t : value.toTensorVector()) worst = std::max(worst, inspect(t));
  }
  return worst;
}

std::optional<std::string> bad_parameter(const std::vector<graph::Parameter>& all, const char* kind) {
  for (const graph::Parameter& p : all) {
    const Bad bad = inspect(p.tensor.detach());
    if (bad >= Bad::infinity) return cat(kind, " ", p.name, " holds ", describe(bad));
  }
  return {};
}

}  // namespace

std::string bad_value(const at::Tensor& tensor) {
  const Bad bad = inspect(tensor.detach());
  return bad == Bad::none ? "" : describe(bad);
}

std::string first_bad_tensor(graph::Executor& executor, const std::vector<c10::IValue>& inputs,
                             uint64_t seed) {
  const at::NoGradGuard no_grad;
  if (const auto found = bad_parameter(executor.parameters(), "parameter")) return *found;
  if (const auto found = bad_parameter(executor.buffers(), "buffer")) return *found;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Bad bad = inspect({inputs[i]});
    if (bad != Bad::none) return cat("input ", i, " of the graph holds ", describe(bad));
  }
  std::string first, first_mask;
  executor.observe([&](const spec::Node& node, const std::vector<c10::IValue>& outputs) {
    if (!first.empty()) return;
    const Bad bad = inspect(outputs);
    if (bad >= Bad::infinity) first = describe(node, bad);
    if (bad == Bad::minus_infinity && first_mask.empty()) first_mask = describe(node, bad);
  });
  at::manual_seed(seed);
  executor.run(inputs, graph::Mode::train);
  executor.observe({});
  if (!first.empty()) return first;
  return first_mask.empty() ? "no tensor of the forward holds a bad value when it is run again" : first_mask;
}

}  // namespace trireme::train
