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

std::optional<std::string> bad_sample(const Dataset& dataset, std::span<const int64_t> ids) {
  const auto batch = dataset.batch(ids);
  for (size_t i = 0; i < batch.size(); ++i) {
    if (inspect(batch[i]) == Bad::none) continue;
    for (size_t row = 0; row < ids.size(); ++row) {
      const Bad bad = inspect(batch[i][static_cast<int64_t>(row)]);
      if (bad != Bad::none) return cat(dataset.place(i, ids[row]), " holds ", describe(bad));
    }
  }
  return {};
}

}  // namespace

std::string bad_value(const at::Tensor& tensor) {
  const Bad bad = inspect(tensor.detach());
  return bad == Bad::none ? "" : describe(bad);
}

BadTensor first_bad_tensor(graph::Executor& executor, const Dataset& dataset, std::span<const int64_t> ids,
                           const std::vector<c10::IValue>& inputs, uint64_t seed) {
  const at::NoGradGuard no_grad;
  if (const auto found = bad_parameter(executor.parameters(), "parameter")) return {*found};
  if (const auto found = bad_parameter(executor.buffers(), "buffer")) return {*found};
  if (const auto found = bad_sample(dataset, ids)) return {*found, true};
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
  if (!first.empty()) return {first};
  if (!first_mask.empty()) return {first_mask};
  return {"no tensor of the forward holds a bad value when it is run again"};
}

std::string largest_integers(const Dataset& dataset, std::span<const int64_t> ids) {
  const auto batch = dataset.batch(ids);
  std::vector<std::string> found;  // windows and their next tokens often say the same
  const auto add = [&](size_t input, int64_t row, int64_t value, std::string_view which) {
    const auto text = cat(dataset.place(input, ids[static_cast<size_t>(row)]), " holds ", value, ", the ",
                          which, " of this batch");
    if (std::find(found.begin(), found.end(), text) == found.end()) found.push_back(text);
  };
  for (size_t i = 0; i < batch.size(); ++i) {
    if (!at::isIntegralType(batch[i].scalar_type(), false) || batch[i].numel() == 0) continue;
    const at::Tensor values = batch[i].to(at::kLong).contiguous();
    const std::span all(values.const_data_ptr<int64_t>(), static_cast<size_t>(values.numel()));
    const int64_t row_size = values.numel() / values.size(0);
    const auto [least, most] = std::minmax_element(all.begin(), all.end());
    add(i, (most - all.begin()) / row_size, *most, "largest");
    if (*least < 0) add(i, (least - all.begin()) / row_size, *least, "smallest");
  }
  std::string text;
  for (const auto& one : found) text += (text.empty() ? "" : "; ") + one;
  return text;
}

}  // namespace trireme::train
