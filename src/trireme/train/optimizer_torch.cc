#include "trireme/train/optimizer_torch.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <regex>
#include <tuple>

#include "trireme/base/error.h"

namespace trireme::train {
namespace {

std::regex compile(const std::string& pattern, const std::string& key) {
  try {
    return std::regex(pattern);
  } catch (const std::regex_error& e) {
    fail(ErrorCode::usage, key, ": '", pattern, "' is not a regular expression: ", e.what());
  }
}

// A pattern over parameter names that must find something, because a pattern that silently finds nothing is a
// typing mistake that costs a training run.
class Pattern {
 public:
  Pattern(const std::string& text, std::string key, const std::vector<OptimParameter>& parameters)
      : regex_(compile(text, key)) {
    for (const auto& p : parameters) {
      if (matches(p.name)) return;
    }
    const std::string example =
        parameters.empty() ? "" : cat(" (names look like '", parameters.front().name, "')");
    fail(ErrorCode::usage, key, ": '", text, "' matches no trained parameter", example);
  }
  bool matches(const std::string& name) const { return std::regex_search(name, regex_); }

 private:
  std::regex regex_;
};

// Hyperparameters of one parameter, and its state. Complex parameters are seen as pairs of reals, as
// torch.optim does.
struct Entry {
  std::string name;
  at::Tensor target;
  double lr = 0, weight_decay = 0;
  at::Tensor step, first, second;  // momentum buffer / exp_avg, exp_avg_sq
  bool started = false;            // SGD: the buffer holds a gradient
};

// What one call of a fused kernel takes, or one loop over plain operators: parameters of one type with equal
// hyperparameters.
struct Launch {
  std::vector<at::Tensor> targets, gradients, steps, first, second;
  std::vector<Entry*> entries;
};
using LaunchKey = std::tuple<at::ScalarType, double, double, bool>;  // type, lr, weight decay, started

at::Tensor real_view(const at::Tensor& t) {
  return t.is_complex() ? at::view_as_real(t) : t;
}

class TorchOptimizer : public Optimizer {
 public:
  TorchOptimizer(const OptimOptions& options, const std::vector<OptimParameter>& parameters);
  void step(const std::vector<size_t>& indices, const std::vector<at::Tensor>& gradients,
            double lr_factor) override;
  std::map<std::string, at::Tensor> state() const override;
  void load_state(const std::map<std::string, at::Tensor>& state) override;
  double lr(size_t index) const override { return entries_.at(index).lr; }

 private:
  bool adam() const { return options_.kind != "sgd"; }
  void set_hyperparameters(const std::vector<OptimParameter>& parameters);
  // One step's numbers for one launch.
  struct Rule {
    double lr, weight_decay;
    bool started;
  };
  void launch(const LaunchKey& key, Launch& l, double lr_factor);
  void run_fused(Launch& l, const Rule& rule);
  void plain_sgd(Launch& l, size_t i, const Rule& rule);
  void plain_adam(Launch& l, size_t i, const Rule& rule);

  OptimOptions options_;
  std::vector<Entry> entries_;
};

TorchOptimizer::TorchOptimizer(const OptimOptions& options, const std::vector<OptimParameter>& parameters)
    : options_(options) {
  const at::NoGradGuard no_grad;
  entries_.reserve(parameters.size());
  for (const auto& p : parameters) {
    Entry e{.name = p.name, .target = real_view(p.tensor.detach())};
    const bool has_state = adam() || options_.momentum != 0;
    if (has_state) {
      e.step = at::zeros({}, e.target.options().dtype(at::kFloat));
      e.first = at::zeros_like(e.target);
    }
    if (adam()) e.second = at::zeros_like(e.target);
    entries_.push_back(std::move(e));
  }
  set_hyperparameters(parameters);
}

void TorchOptimizer::set_hyperparameters(const std::vector<OptimParameter>& parameters) {
  std::vector<Pattern> no_decay, groups;
  for (const auto& text : options_.no_decay) no_decay.emplace_back(text, "optim.no_decay", parameters);
  for (const auto& g : options_.groups) groups.emplace_back(g.match, "optim.group.match", parameters);
  for (Entry& e : entries_) {
    e.lr = options_.lr;
    e.weight_decay = options_.weight_decay.value_or(options_.kind == "adamw" ? 0.01 : 0.0);
    for (const Pattern& p : no_decay) {
      if (p.matches(e.name)) e.weight_decay = 0;
    }
    for (size_t i = 0; i < groups.size(); ++i) {
      if (!groups[i].matches(e.name)) continue;
      e.lr = options_.groups[i].lr.value_or(e.lr);
      e.weight_decay = options_.groups[i].weight_decay.value_or(e.weight_decay);
      break;
    }
  }
}

// The fused kernels walk raw memory in order: target, gradient and state must be dense and share one layout.
at::Tensor dense_target(const at::Tensor& target) {
  return target.is_non_overlapping_and_dense() ? target : target.contiguous();
}
at::Tensor laid_out_as(const at::Tensor& target, at::Tensor gradient) {
  if (gradient.is_sparse()) gradient = gradient.to_dense();
  gradient = real_view(gradient);
  if (gradient.strides() == target.strides() && gradient.scalar_type() == target.scalar_type())
    return gradient;
  return at::empty_like(target).copy_(gradient);
}

void TorchOptimizer::step(const std::vector<size_t>& indices, const std::vector<at::Tensor>& gradients,
                          double lr_factor) {
  TRIREME_CHECK(indices.size() == gradients.size());
  const at::NoGradGuard no_grad;
  std::map<LaunchKey, Launch> launches;
  for (size_t i = 0; i < indices.size(); ++i) {
    Entry& e = entries_.at(indices[i]);
    if (!gradients[i].defined() || e.target.numel() == 0) continue;
    Launch& l = launches[{e.target.scalar_type(), e.lr, e.weight_decay, e.started}];
    l.targets.push_back(dense_target(e.target));
    l.gradients.push_back(laid_out_as(l.targets.back(), gradients[i]));
    l.entries.push_back(&e);
    if (e.first.defined()) l.first.push_back(e.first);
    if (e.second.defined()) l.second.push_back(e.second);
    if (e.step.defined()) l.steps.push_back(e.step);
  }
  for (auto& [key, l] : launches) launch(key, l, lr_factor);
}

void TorchOptimizer::launch(const LaunchKey& key, Launch& l, double lr_factor) {
  const auto& [type, base_lr, weight_decay, started] = key;
  const Rule rule{base_lr * lr_factor, weight_decay, started};
  if (!l.steps.empty()) at::_foreach_add_(l.steps, 1);
  if (type == at::kFloat || type == at::kDouble) {
    run_fused(l, rule);
  } else {
    for (size_t i = 0; i < l.targets.size(); ++i) adam() ? plain_adam(l, i, rule) : plain_sgd(l, i, rule);
  }
  for (size_t i = 0; i < l.entries.size(); ++i) {
    Entry& e = *l.entries[i];
    if (!l.targets[i].is_same(e.target)) e.target.copy_(l.targets[i]);
    e.started = true;
  }
}

void TorchOptimizer::run_fused(Launch& l, const Rule& rule) {
  if (adam()) {
    const auto kernel =
        options_.kind == "adam" ? &at::_ops::_fused_adam_::call : &at::_ops::_fused_adamw_::call;
    kernel(l.targets, l.gradients, l.first, l.second, /*max_exp_avg_sqs=*/{}, l.steps, rule.lr,
           options_.betas.at(0), options_.betas.at(1), rule.weight_decay, options_.eps, /*amsgrad=*/false,
           /*maximize=*/false, /*grad_scale=*/{}, /*found_inf=*/{});
  } else {
    at::_fused_sgd_(l.targets, l.gradients, l.first, rule.weight_decay, options_.momentum, rule.lr,
                    options_.dampening, options_.nesterov, /*maximize=*/false,
                    /*is_first_step=*/!rule.started);
  }
}

// 16-bit types go operator by operator, as torch.optim does unless told otherwise: torch 2.13's fused CPU
// kernels leave most elements of a bf16 or f16 parameter wrong (SGD), or round its second moment away (Adam).
void TorchOptimizer::plain_sgd(Launch& l, size_t i, const Rule& rule) {
  at::Tensor gradient = l.gradients[i];
  if (rule.weight_decay != 0) gradient = gradient.add(l.targets[i], rule.weight_decay);
  if (options_.momentum != 0) {
    at::Tensor& buffer = l.first[i];
    if (rule.started) {
      buffer.mul_(options_.momentum).add_(gradient, 1 - options_.dampening);
    } else {
      buffer.copy_(gradient);
    }
    gradient = options_.nesterov ? gradient.add(buffer, options_.momentum) : buffer;
  }
  l.targets[i].add_(gradient, -rule.lr);
}

void TorchOptimizer::plain_adam(Launch& l, size_t i, const Rule& rule) {
  at::Tensor gradient = l.gradients[i];
  const at::Tensor& target = l.targets[i];
  if (rule.weight_decay != 0 && options_.kind == "adam") gradient = gradient.add(target, rule.weight_decay);
  if (rule.weight_decay != 0 && options_.kind == "adamw") target.mul_(1 - rule.lr * rule.weight_decay);
  const double beta1 = options_.betas.at(0), beta2 = options_.betas.at(1);
  l.first[i].lerp_(gradient, 1 - beta1);
  l.second[i].mul_(beta2).addcmul_(gradient, gradient, 1 - beta2);
  const double step = l.steps[i].item().toDouble();
  const double correction1 = 1 - std::pow(beta1, step), correction2 = 1 - std::pow(beta2, step);
  target.addcdiv_(l.first[i], l.second[i].sqrt().div_(std::sqrt(correction2)).add_(options_.eps),
                  -rule.lr / correction1);
}

std::map<std::string, at::Tensor> TorchOptimizer::state() const {
  const char* first = adam() ? ".exp_avg" : ".momentum_buffer";
  std::map<std::string, at::Tensor> all;
  for (const Entry& e : entries_) {
    if (e.step.defined()) all[e.name + ".step"] = e.step;
    if (e.first.defined()) all[e.name + first] = e.first;
    if (e.second.defined()) all[e.name + ".exp_avg_sq"] = e.second;
  }
  return all;
}

void TorchOptimizer::load_state(const std::map<std::string, at::Tensor>& state) {
  const at::NoGradGuard no_grad;
  const auto mine = this->state();
  for (const auto& [name, tensor] : state) {
    if (!mine.contains(name)) {
      fail(ErrorCode::input, "optimizer state '", name,
           "' belongs to no trained parameter of this run with optim.kind = \"", options_.kind,
           "\"; to start the optimizer afresh give the checkpoint as model.weights");
    }
  }
  for (const auto& [name, tensor] : mine) {
    const auto found = state.find(name);
    if (found == state.end()) {
      fail(ErrorCode::input, "optimizer state '", name,
           "' is missing in the checkpoint; to start the optimizer afresh give the "
           "checkpoint as model.weights");
    }
    if (found->second.sizes() != tensor.sizes()) {
      fail(ErrorCode::input, "optimizer state '", name, "' has shape ", found->second.sizes(),
           " in the checkpoint, but ", tensor.sizes(), " here");
    }
    tensor.copy_(found->second);
  }
  for (Entry& e : entries_) e.started = e.step.defined() && e.step.item().toDouble() > 0;
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimOptions& options,
                                          std::vector<OptimParameter> parameters) {
  return std::make_unique<TorchOptimizer>(options, parameters);
}

}  // namespace trireme::train
