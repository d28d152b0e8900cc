#include "trireme/train/data_parallel/gradient_sync_torch.h"

#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <utility>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/rng.h"
#include "trireme/tensor/adaptor_torch.h"

namespace trireme::train {

std::vector<std::vector<size_t>> plan_buckets(const std::vector<int64_t>& bytes,
                                              const std::vector<size_t>& order, const BucketLimits& limits) {
  std::vector<std::vector<size_t>> buckets;
  std::vector<size_t> open;
  int64_t passed = 0;  // bytes that became ready since `open` began
  const auto close = [&] {
    if (!open.empty()) buckets.push_back(std::exchange(open, {}));
    passed = 0;
  };
  int64_t rest = 0;  // bytes from here to the end
  for (const size_t i : order) rest += bytes.at(i);
  for (const size_t i : order) {
    if (passed > 0 && passed + bytes[i] > (buckets.empty() ? limits.first : limits.others)) close();
    // The last bucket begins where what remains fits it.
    if (rest <= limits.first && rest + passed > limits.first) close();
    rest -= bytes[i];
    if (bytes[i] >= limits.alone) {
      buckets.push_back({i});
      if (!open.empty()) passed += bytes[i];
    } else {
      open.push_back(i);
      passed += bytes[i];
    }
  }
  close();
  return buckets;
}

namespace {

using torch::autograd::PostAccumulateGradHook;

// Pieces per rank's share of a bucket: small enough that a peer decodes one while the next one travels, large
// enough that a message's fixed cost stays small beside its transfer.
constexpr int64_t kPieceBytes = 1 << 20;
constexpr int64_t kMaxPieces = 16;

double seconds_since(Clock::Nanoseconds begin) {
  return std::chrono::duration<double>(steady_clock().now() - begin).count();
}

at::Tensor dense(const at::Tensor& gradient) {
  return gradient.is_sparse() ? gradient.to_dense() : gradient;
}
at::Tensor real_view(const at::Tensor& t) {
  return t.is_complex() ? at::view_as_real(t) : t;
}

// Where one parameter's gradient is, and what happened to it in this step.
struct Slot {
  size_t bucket = 0;
  int64_t offset = 0;    // of its part of the bucket's memory
  at::Tensor values;     // float32, in the parameter's layout, complex numbers as pairs; undefined once taken
  bool filled = false;   // has a gradient of this step
  bool arrived = false;  // fired in the running backward
};

struct Bucket {
  std::vector<size_t> members;
  int64_t elements = 0;
  at::Tensor memory;
  // What the codec remembers: vectors over the bucket's elements by name, or the rounds' own.
  std::vector<std::vector<float>> codec_state;
  std::unique_ptr<codec::Rounds> rounds;
  std::unique_ptr<comm::Operation> all_reduce;  // null for a bucket without elements
  size_t pending = 0;                           // members that the last backward has not reached yet
  bool started = false, finished = false;
};

}  // namespace

struct GradientSync::State {
  State(comm::Group& g, std::vector<NamedParameter> p, const GradientSyncOptions& o)
      : group(g),
        parameters(std::move(p)),
        options(o),
        local(g.size() == 1 || o.strategy == comm::Strategy::off) {}

  comm::Group& group;
  std::vector<NamedParameter> parameters;
  GradientSyncOptions options;
  bool local;  // no exchange

  std::vector<Bucket> buckets;
  std::vector<Slot> slots;  // by parameter
  uint32_t step = 0;
  bool last = false;

  // Readiness in the first step's last backward; buckets follow it from the second step on.
  std::vector<size_t> ready_order;  // this rank's
  std::vector<uint64_t> order;      // agreed, of all parameters; empty: not yet learned
  bool any_step = false;

  // kMaxScalars numbers, then one flag per parameter: 1 where this rank has a gradient.
  at::Tensor scalars;
  std::unique_ptr<comm::Operation> scalar_mean;
  bool scalars_finished = false;
  std::vector<double> means;

  std::vector<at::Tensor> local_gradients;  // by parameter, when local

  void make_buckets(const std::vector<size_t>& order);
  void make_bucket(size_t index);
  void prepare_all_reduce(size_t index);
  // body(state name, parameter, live memory)
  void for_each_state(const std::function<void(const std::string&, size_t, std::span<float>)>& body);
  void remake_buckets(const std::vector<size_t>& order);  // state goes with its parameters
  at::Tensor home(size_t index);
  void agree_on_order();
  void begin_step();
  void arrive(size_t index, const at::Tensor& parameter);
  void start(size_t bucket);
  double finish_scalars();
  bool used_anywhere(size_t index) const;  // once its bucket was waited for
};

namespace {

class ArriveHook : public PostAccumulateGradHook {
 public:
  ArriveHook(std::function<void(const at::Tensor&)> arrive) : arrive_(std::move(arrive)) {}
  void operator()(const at::Tensor& parameter) override { arrive_(parameter); }

 private:
  std::function<void(const at::Tensor&)> arrive_;
};

// Vectors stay vectors; of more dimensions the first counts the rows.
codec::Shape shape_of(const NamedParameter& parameter) {
  const at::Tensor values = real_view(parameter.tensor.detach());
  const int64_t rows = values.dim() < 2 ? values.numel() : values.size(0);
  return {parameter.name, rows, rows == 0 ? 0 : values.numel() / rows};
}

// Autograd lays a gradient out as its parameter where that is dense, else row by row; a slot does the same,
// so that neither the copy in nor the optimizer's kernel has to reorder.
at::Tensor view_as_gradient(const at::Tensor& memory, int64_t offset, const at::Tensor& parameter) {
  const at::Tensor like = real_view(parameter);
  if (like.is_non_overlapping_and_dense()) return memory.as_strided(like.sizes(), like.strides(), offset);
  return memory.narrow(0, offset, like.numel()).view(like.sizes());
}

}  // namespace

// Whether `gradient` can serve as the place where the mean is made: nothing else sees its memory (views of
// one storage reach several parameters through add, cat and the like), and it lies as the parameter does.
bool can_travel(const at::Tensor& gradient, const at::Tensor& parameter) {
  const at::Tensor like = real_view(parameter.detach());
  const bool as_parameter =
      like.is_non_overlapping_and_dense() ? gradient.strides() == like.strides() : gradient.is_contiguous();
  return gradient.scalar_type() == at::kFloat && gradient.device().is_cpu() && as_parameter &&
         gradient.sizes() == like.sizes() && gradient.storage().use_count() == 1;
}

void GradientSync::State::make_bucket(size_t index) {
  Bucket& b = buckets[index];
  for (const size_t i : b.members) {
    slots[i] = {.bucket = index, .offset = b.elements};
    b.elements += real_view(parameters[i].tensor).numel();
  }
  b.memory = at::empty({b.elements}, at::kFloat);  // of one that travels alone, untouched until it is needed
  if (b.elements > 0) prepare_all_reduce(index);
}

void GradientSync::State::prepare_all_reduce(size_t index) {
  Bucket& b = buckets[index];
  const int64_t elements = b.elements, bytes = elements * static_cast<int64_t>(sizeof(float));
  comm::AllReduceOptions all_reduce{
      .strategy = options.strategy, .mean = true, .seed = mix(options.seed, index)};
  if (options.codec != nullptr && bytes >= options.min_bytes) {
    all_reduce.codec = options.codec;
    codec::Shapes shapes;
    for (const size_t i : b.members) shapes.push_back(shape_of(parameters[i]));
    b.rounds = options.codec->rounds(shapes);
    all_reduce.rounds = b.rounds.get();
    if (b.rounds == nullptr)
      b.codec_state.assign(options.codec->state_names().size(),
                           std::vector<float>(static_cast<size_t>(elements)));
    for (auto& vector : b.codec_state) all_reduce.codec_state.emplace_back(vector);
  } else if (options.strategy == comm::Strategy::gather) {
    all_reduce.strategy = comm::Strategy::ring;  // what is not compressed is summed on its way
  }
  all_reduce.parts = static_cast<int>(std::clamp<int64_t>(bytes / group.size() / kPieceBytes, 1, kMaxPieces));
  b.all_reduce = group.prepare_all_reduce(cat("bucket ", index), tensor::view_of(b.memory), all_reduce);
}

// The parameter's part of its bucket's memory.
at::Tensor GradientSync::State::home(size_t index) {
  Bucket& b = buckets[slots[index].bucket];
  return view_as_gradient(b.memory, slots[index].offset, parameters[index].tensor.detach());
}

void GradientSync::State::make_buckets(const std::vector<size_t>& order) {
  std::vector<int64_t> bytes;
  for (const auto& p : parameters)
    bytes.push_back(real_view(p.tensor.detach()).numel() * static_cast<int64_t>(sizeof(float)));
  buckets.clear();
  slots.assign(parameters.size(), {});
  const BucketLimits limits{options.first_bucket_bytes, options.bucket_bytes, options.alone_bytes};
  for (auto& members : plan_buckets(bytes, order, limits)) {
    buckets.push_back({.members = std::move(members)});
  }
  for (size_t b = 0; b < buckets.size(); ++b) make_bucket(b);
}

void GradientSync::State::for_each_state(
    const std::function<void(const std::string&, size_t, std::span<float>)>& body) {
  const auto names = options.codec == nullptr ? std::vector<std::string>() : options.codec->state_names();
  for (Bucket& b : buckets) {
    if (b.rounds != nullptr) {
      for (const auto& [name, by_member] : b.rounds->state()) {
        for (size_t m = 0; m < by_member.size(); ++m) body(name, b.members[m], by_member[m]);
      }
    }
    for (size_t n = 0; n < b.codec_state.size(); ++n) {
      size_t at = 0;
      for (const size_t i : b.members) {
        const auto size = static_cast<size_t>(real_view(parameters[i].tensor.detach()).numel());
        body(names[n], i, std::span(b.codec_state[n]).subspan(at, size));
        at += size;
      }
    }
  }
}

void GradientSync::State::remake_buckets(const std::vector<size_t>& new_order) {
  std::map<std::pair<std::string, size_t>, std::vector<float>> kept;
  for_each_state([&](const std::string& name, size_t i, std::span<float> values) {
    kept[{name, i}].assign(values.begin(), values.end());
  });
  make_buckets(new_order);
  // A bucket that is now below min_bytes has no codec, and what its parameters kept is given up.
  for_each_state([&](const std::string& name, size_t i, std::span<float> values) {
    const auto found = kept.find({name, i});
    if (found != kept.end()) std::copy(found->second.begin(), found->second.end(), values.begin());
  });
}

// Rank 0's order of readiness, then the parameters that it did not use, last layer first.
void GradientSync::State::agree_on_order() {
  std::vector<bool> listed(parameters.size());
  order.assign(ready_order.begin(), ready_order.end());
  for (const size_t i : ready_order) listed[i] = true;
  for (size_t i = parameters.size(); i-- > 0;) {
    if (!listed[i]) order.push_back(i);
  }
  group.broadcast(std::as_writable_bytes(std::span(order)), 0);
}

void GradientSync::State::begin_step() {
  if (any_step && order.empty()) {
    agree_on_order();
    remake_buckets({order.begin(), order.end()});
  }
  any_step = true;
  for (Slot& s : slots) s.filled = false;
  for (Bucket& b : buckets) b.started = b.finished = false;
  scalars_finished = false;
}

// Called by autograd, on its thread for the parameters' device.
void GradientSync::State::arrive(size_t index, const at::Tensor& parameter) {
  Slot& slot = slots[index];
  TRIREME_CHECK(!slot.arrived, "two gradients in one backward for ", parameters[index].name);
  // Taken away, so that autograd hands over the next gradient instead of adding to this one.
  const at::Tensor gradient = real_view(dense(std::exchange(parameter.mutable_grad(), at::Tensor())));
  if (slot.filled) {
    slot.values.add_(gradient.to(slot.values.options()));
  } else if (buckets[slot.bucket].members.size() == 1 && can_travel(gradient, parameter)) {
    slot.values = gradient;
  } else {
    slot.values = home(index);
    slot.values.copy_(gradient);
  }
  slot.filled = slot.arrived = true;
  if (!last) return;
  if (order.empty()) ready_order.push_back(index);
  if (--buckets[slot.bucket].pending == 0) start(slot.bucket);
}

void GradientSync::State::start(size_t bucket) {
  Bucket& b = buckets[bucket];
  b.started = true;
  // Earlier buckets are waited for first. The scalars go before all: they are small and tell the optimizer
  // what to skip.
  if (!b.all_reduce) return;
  b.all_reduce->use(b.members.size() == 1 ? slots[b.members[0]].values.mutable_data_ptr()
                                          : b.memory.mutable_data_ptr());
  b.all_reduce->start(step, static_cast<int>(bucket) + 1);
}

double GradientSync::State::finish_scalars() {
  if (local || scalars_finished) return 0;
  const auto begin = steady_clock().now();
  scalar_mean->wait();
  scalars_finished = true;
  const float* values = scalars.const_data_ptr<float>();
  for (size_t i = 0; i < means.size(); ++i) means[i] = values[i];
  return seconds_since(begin);
}

bool GradientSync::State::used_anywhere(size_t index) const {
  return slots[index].filled || scalars.const_data_ptr<float>()[kMaxScalars + index] > 0;
}

GradientSync::GradientSync(comm::Group& group, std::vector<NamedParameter> parameters,
                           const GradientSyncOptions& options)
    : state_(std::make_unique<State>(group, std::move(parameters), options)) {
  State& s = *state_;
  std::vector<size_t> order(options.ready_order.begin(), options.ready_order.end());
  if (order.empty()) {
    order.resize(s.parameters.size());
    std::iota(order.rbegin(), order.rend(), size_t{0});
  }
  TRIREME_CHECK(order.size() == s.parameters.size(), "an order of readiness of ", order.size());
  if (s.local) {
    s.buckets.push_back({.members = order});
    s.local_gradients.resize(order.size());
    return;
  }
  s.order = options.ready_order;
  s.make_buckets(order);
  const auto flags = static_cast<int64_t>(kMaxScalars + order.size());
  s.scalars = at::zeros({flags}, at::kFloat);
  // Two phases: the fewest message delays for a few numbers.
  s.scalar_mean = group.prepare_all_reduce("scalars", tensor::view_of(s.scalars),
                                           {.strategy = comm::Strategy::two_phase, .mean = true});
  for (size_t i = 0; i < s.parameters.size(); ++i) {
    torch::autograd::impl::set_post_acc_grad_hooks(
        s.parameters[i].tensor, std::make_unique<ArriveHook>(
                                    [state = state_.get(), i](const at::Tensor& p) { state->arrive(i, p); }));
  }
}

GradientSync::~GradientSync() {
  if (state_->local) return;
  for (const auto& p : state_->parameters) torch::autograd::impl::set_post_acc_grad_hooks(p.tensor, nullptr);
}

void GradientSync::begin_backward(uint32_t step, bool first, bool last) {
  State& s = *state_;
  s.step = step;
  s.last = last;
  if (s.local) return;
  if (first) s.begin_step();
  for (Slot& slot : s.slots) slot.arrived = false;
  for (Bucket& b : s.buckets) b.pending = b.members.size();
}

void GradientSync::end_backward(std::span<const double> scalars) {
  State& s = *state_;
  TRIREME_CHECK(scalars.size() <= kMaxScalars);
  s.means.assign(scalars.begin(), scalars.end());
  if (s.local) {
    for (size_t i = 0; i < s.parameters.size(); ++i) {
      at::Tensor& gradient = s.parameters[i].tensor.mutable_grad();
      s.local_gradients[i] = gradient.defined() ? dense(std::exchange(gradient, at::Tensor())) : at::Tensor();
    }
    return;
  }
  float* values = s.scalars.mutable_data_ptr<float>();
  std::fill_n(std::copy(scalars.begin(), scalars.end(), values), kMaxScalars - scalars.size(), 0.0F);
  for (size_t i = 0; i < s.slots.size(); ++i) values[kMaxScalars + i] = s.slots[i].filled ? 1 : 0;
  s.scalar_mean->start(s.step, 0);
  for (size_t i = 0; i < s.slots.size(); ++i) {
    if (!s.slots[i].filled) (s.slots[i].values = s.home(i)).zero_();
  }
  for (size_t b = 0; b < s.buckets.size(); ++b) {
    if (!s.buckets[b].started) s.start(b);
  }
}

double GradientSync::wait(size_t bucket) {
  Bucket& b = state_->buckets.at(bucket);
  if (state_->local || b.finished) return 0;
  TRIREME_CHECK(b.started);
  const auto begin = steady_clock().now();
  if (b.all_reduce) b.all_reduce->wait();
  // Only the other ranks know about a parameter that this one did not use.
  const auto unused = [&](size_t i) { return !state_->slots[i].filled; };
  if (std::any_of(b.members.begin(), b.members.end(), unused)) state_->finish_scalars();
  b.finished = true;
  return seconds_since(begin);
}

double GradientSync::wait_scalars() {
  return state_->finish_scalars();
}
double GradientSync::scalar_mean(size_t index) const {
  return state_->means.at(index);
}
size_t GradientSync::buckets() const {
  return state_->buckets.size();
}
const std::vector<size_t>& GradientSync::members(size_t bucket) const {
  return state_->buckets.at(bucket).members;
}

std::vector<at::Tensor> GradientSync::take_gradients(size_t bucket) {
  State& s = *state_;
  std::vector<at::Tensor> all;
  for (const size_t i : members(bucket)) {
    if (s.local) {
      all.push_back(std::move(s.local_gradients[i]));
    } else if (!s.used_anywhere(i)) {
      all.emplace_back();
    } else {
      const at::Tensor& parameter = s.parameters[i].tensor;
      const at::Tensor values =
          std::exchange(s.slots[i].values, {}).to(real_view(parameter.detach()).options());
      all.push_back(parameter.is_complex() ? at::view_as_complex(values) : values);
    }
  }
  return all;
}

std::map<std::string, at::Tensor> GradientSync::codec_state() const {
  std::map<std::string, at::Tensor> all;
  state_->for_each_state([&](const std::string& name, size_t i, std::span<float> values) {
    at::Tensor copy = at::empty({static_cast<int64_t>(values.size())}, at::kFloat);
    std::copy(values.begin(), values.end(), copy.mutable_data_ptr<float>());
    all[cat(state_->parameters[i].name, ".", name)] = std::move(copy);
  });
  return all;
}

void GradientSync::load_codec_state(const std::map<std::string, at::Tensor>& state) {
  state_->for_each_state([&](const std::string& name, size_t i, std::span<float> values) {
    const std::string key = cat(state_->parameters[i].name, ".", name);
    const auto found = state.find(key);
    if (found == state.end()) return;
    if (found->second.numel() != static_cast<int64_t>(values.size())) {
      fail(ErrorCode::input, "codec state ", key, " has ", found->second.numel(), " elements, ",
           values.size(), " belong: its codec had other options");
    }
    const at::Tensor from = found->second.to(at::kFloat).contiguous();
    std::copy_n(from.const_data_ptr<float>(), values.size(), values.begin());
  });
}

std::vector<uint64_t> GradientSync::ready_order() const {
  return state_->order;
}

}  // namespace trireme::train
