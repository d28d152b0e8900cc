#include "trireme/train/trainer_torch.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/full.h>
#include <c10/core/DeviceGuard.h>
#include <sys/resource.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/base/rng.h"
#include "trireme/base/trace.h"
#include "trireme/comm/engine.h"
#include "trireme/comm/group.h"
#include "trireme/graph/executor_torch.h"
#include "trireme/tensor/adaptor_torch.h"
#include "trireme/train/bad_value_torch.h"
#include "trireme/train/checkpoint_torch.h"
#include "trireme/train/checkpoint_writer_torch.h"
#include "trireme/train/data/dataset_torch.h"
#include "trireme/train/data/order.h"
#include "trireme/train/data_parallel/agreement.h"
#include "trireme/train/data_parallel/codec_state_torch.h"
#include "trireme/train/data_parallel/gradient_sync_torch.h"
#include "trireme/train/data_parallel/replicas_torch.h"
#include "trireme/train/optimizer_torch.h"
#include "trireme/train/progress.h"
#include "trireme/train/run_setup_torch.h"
#include "trireme/train/schedule.h"
#include "trireme/train/sync_choice.h"
#include "trireme/transport/interfaces.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using Inputs = std::vector<c10::IValue>;

// Seconds since construction or the last lap.
class Stopwatch {
 public:
  double lap() {
    const auto now = steady_clock().now();
    return std::chrono::duration<double>(now - std::exchange(begin_, now)).count();
  }

 private:
  Clock::Nanoseconds begin_ = steady_clock().now();
};

int64_t peak_rss_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The checkpoint's order of readiness as indices, so that a resumed run adds the same numbers in the same
// order from its first step on. Empty where it was not recorded or other parameters are trained now.
std::vector<uint64_t> ready_order(const std::vector<NamedParameter>& trained, const std::string& names) {
  if (names.empty()) return {};
  std::map<std::string, uint64_t> index;
  for (const NamedParameter& p : trained) index.emplace(p.name, index.size());
  std::vector<uint64_t> order;
  for (const auto& name : nlohmann::json::parse(names)) {
    const auto found = index.find(name.is_string() ? name.get<std::string>() : "");
    if (found == index.end()) return {};
    order.push_back(found->second);
    index.erase(found);
  }
  return index.empty() ? order : std::vector<uint64_t>{};
}

// One rank of one run.
class Trainer {
 public:
  Trainer(const Config& config, const RankContext& context);
  Summary run();

 private:
  // Set-up, in this order.
  void connect();
  void build_model();
  void build_optimizer();
  void restore();
  void build_sync();
  void restore_model(const Checkpoint& checkpoint);
  void open_files();

  StepMetrics train_step(int64_t step);
  at::Tensor forward(const Dataset& dataset, std::span<const int64_t> ids, const Inputs& batch,
                     graph::Mode mode);
  at::Tensor forward_backward(int64_t step, int64_t micro, StepMetrics& metrics);
  double local_loss(int64_t step, const std::vector<at::Tensor>& losses);
  void apply_gradients(double lr_factor, StepMetrics& metrics);
  [[noreturn]] void fail_diverged(int64_t step);
  std::string advice_if_diverged(int64_t step, bool updated) const;
  std::optional<double> evaluate(int64_t step);
  void save(int64_t step, bool last);
  Checkpoint checkpoint(int64_t step, std::map<std::string, at::Tensor> codec_state) const;
  Summary summary(int64_t steps) const;

  Inputs inputs(const Dataset& dataset, std::span<const int64_t> ids) const;
  std::vector<int64_t> training_ids(int64_t micro) const;
  uint64_t random_seed(int64_t step, int64_t micro) const;
  void share_buffers();
  std::vector<uint32_t> parameter_versions() const;
  void check_unchanged(const std::vector<uint32_t>& versions) const;
  bool exchanges() const { return group_->size() > 1 && choice_.strategy != comm::Strategy::off; }
  std::vector<at::Tensor> buffers() const;
  std::vector<const graph::Parameter*> persistent() const;

  const Config& config_;
  const RankContext& context_;
  at::Device device_;
  c10::OptionalDeviceGuard device_guard_;
  Tracer tracer_;
  const SyncChoice choice_;

  std::shared_ptr<const graph::Program> program_;
  size_t loss_position_ = 0;
  BatchRange batch_range_;
  Datasets datasets_;
  int64_t global_batch_ = 0;  // samples of one micro-batch on all ranks

  std::unique_ptr<transport::Transport> transport_;
  std::unique_ptr<comm::ComputeQueue> queue_;
  std::unique_ptr<comm::Engine> engine_;
  transport::Rendezvous::Watch loss_watch_;  // tells the engine
  std::unique_ptr<comm::Group> group_;

  std::unique_ptr<graph::Executor> executor_;
  std::vector<NamedParameter> trained_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<GradientSync> sync_;

  std::string ready_names_;                        // JSON list, from the checkpoint; see ready_order
  std::map<std::string, at::Tensor> saved_codec_;  // of the checkpoint, on rank 0
  int saved_ranks_ = 0;
  int64_t done_steps_ = 0;  // steps behind us, those of resumed runs included
  int64_t samples_ = 0;     // global samples consumed
  std::string bad_tensor_;  // this rank's loss is not finite: why
  bool stop_ = false;       // some rank was asked to stop

  std::optional<fs::path> out_;  // empty: this rank writes nothing
  std::unique_ptr<RunFiles> files_;
  std::unique_ptr<CheckpointWriter> writer_;  // where out_ is
  std::vector<double> step_seconds_;
  int64_t bytes_sent_ = 0;
  double final_loss_ = 0;
  std::optional<double> eval_loss_;
};

Trainer::Trainer(const Config& config, const RankContext& context)
    : config_(config),
      context_(context),
      device_(choose_device(config.train.device, context.local_rank)),
      tracer_(steady_clock(), context.rank),
      choice_(choose_sync(config, *context.codecs)) {
  at::set_num_threads(thread_count(config.train.threads, context.local_world));
  if (device_.is_cuda()) device_guard_.reset_device(device_);
  if (config.train.check_replicas && choice_.strategy == comm::Strategy::off && context.world > 1) {
    fail(ErrorCode::usage, "train.check_replicas: with sync.strategy = \"off\" replicas differ on purpose");
  }
  program_ = graph::Program::load(config.model.graph);
  loss_position_ = loss_position(*program_, config.model.graph);
  batch_range_ = batch_range(program_->graph());
  check_batch(batch_range_, config.train.batch_per_rank, config.model.graph);
  datasets_ = open_datasets(config.data, program_->graph());
  global_batch_ = config.train.batch_per_rank * context.world;
  if (const int64_t samples = datasets_.training->samples(); samples < global_batch_) {
    fail(ErrorCode::usage, "train.batch_per_rank = ", config.train.batch_per_rank, " on ", context.world,
         " ranks: the training data has only ", samples,
         " samples; lower it, start fewer ranks, or give more data");
  }
  if (datasets_.evaluation && datasets_.evaluation->samples() < batch_range_.minimum) {
    fail(ErrorCode::usage, "evaluation has ", datasets_.evaluation->samples(),
         " samples, fewer than the batch of ", batch_range_.minimum,
         " that the graph takes: raise data.eval_share or give a larger evaluation file");
  }
  connect();
  build_model();
  build_optimizer();
  restore();
  build_sync();
  open_files();
}

void Trainer::connect() {
  if (context_.world == 1) {
    transport_ = std::move(transport::make_loopback(1).front());
  } else {
    TRIREME_CHECK(context_.rendezvous != nullptr);
    transport::check_interfaces(config_.transport.interface_name);  // before the others wait for this rank
    agree(*context_.rendezvous, context_.rank, context_.world,
          {.version = "trireme " TRIREME_VERSION ", torch " TORCH_VERSION,
           .config = context_.config_digest,
           .graph_fingerprint = spec::fingerprint(program_->graph()),
           .samples = datasets_.training->samples(),
           .evaluation_samples = datasets_.evaluation ? datasets_.evaluation->samples() : 0},
          config_.transport.timeout);
    transport_ =
        transport::make_transport(context_.rank, context_.world, *context_.rendezvous, config_.transport);
  }
  queue_ = comm::make_cpu_queue();
  engine_ = std::make_unique<comm::Engine>(
      *transport_, *queue_, comm::EngineOptions{.timeout = config_.transport.timeout, .tracer = &tracer_});
  group_ = std::make_unique<comm::Group>(*engine_);
  if (context_.rendezvous) {
    loss_watch_ = context_.rendezvous->watch(
        [this](const transport::Loss& loss) { engine_->lost(loss.rank, loss.why); });
  }
}

void Trainer::build_model() {
  graph::ExecutorOptions options{
      .device = to_ours(device_), .weights = config_.model.weights, .freeze = config_.model.freeze};
  options.load_weights = context_.rank == 0;  // the others receive them
  executor_ = std::make_unique<graph::Executor>(program_, options);
  for (const graph::Parameter& p : executor_->parameters()) {
    if (p.tensor.requires_grad()) trained_.push_back({p.name, p.tensor});
  }
  if (trained_.empty())
    fail(ErrorCode::usage, "model.freeze leaves no parameter of ", config_.model.graph, " to train");
}

void Trainer::build_optimizer() {
  std::vector<OptimParameter> parameters;
  for (const NamedParameter& p : trained_) parameters.push_back({p.name, p.tensor});
  optimizer_ = make_optimizer(choice_.optim, std::move(parameters));
}

// Parameters and the buffers that belong to the state dict.
std::vector<const graph::Parameter*> Trainer::persistent() const {
  std::set<std::string> transient;
  for (const spec::GraphInput& input : program_->graph().inputs) {
    if (input.kind == spec::InputKind::buffer && !input.persistent) transient.insert(input.name);
  }
  std::vector<const graph::Parameter*> all;
  for (const auto* list : {&executor_->parameters(), &executor_->buffers()}) {
    for (const graph::Parameter& p : *list) {
      if (!transient.contains(p.name)) all.push_back(&p);
    }
  }
  return all;
}

void Trainer::restore_model(const Checkpoint& checkpoint) {
  const at::NoGradGuard no_grad;
  const auto wanted = persistent();
  for (const graph::Parameter* p : wanted) {
    const auto found = checkpoint.model.find(p->name);
    if (found == checkpoint.model.end()) {
      fail(ErrorCode::input, "the checkpoint has no ", p->name, ", which the graph needs");
    }
    if (found->second.sizes() != p->tensor.sizes()) {
      fail(ErrorCode::input, p->name, " has shape ", found->second.sizes(), " in the checkpoint, ",
           p->tensor.sizes(), " in the graph");
    }
    p->tensor.copy_(found->second);
  }
  if (wanted.size() != checkpoint.model.size()) {
    fail(ErrorCode::input, "the checkpoint holds ", checkpoint.model.size(), " tensors, the graph has ",
         wanted.size(), " of them: it belongs to another model");
  }
}

// Rank 0's weights reach every rank, so that all start equal whatever their files say.
void Trainer::restore() {
  std::array<int64_t, 2> position{};
  if (context_.resume && context_.rank == 0) {
    const fs::path folder = find_checkpoint(*context_.resume);
    const Checkpoint c = load_checkpoint(folder);
    restore_model(c);
    optimizer_->load_state(c.optimizer);
    position = {c.step, c.samples};
    saved_codec_ = c.codec;
    saved_ranks_ = c.world_size;
    if (const auto order = c.extra.find("ready_order"); order != c.extra.end()) ready_names_ = order->second;
    if (c.seed != static_cast<uint64_t>(config_.train.seed)) {
      log::warning(cat("train.seed = ", config_.train.seed, ", but the checkpoint was made with ", c.seed,
                       ": data order and dropout differ from here on"));
    }
    if (c.graph_fingerprint != spec::fingerprint(program_->graph())) {
      log::warning("model.graph is not the file that the checkpoint was made with; the parameters fit");
    }
    log::info(cat("resumed from ", folder.string(), " at step ", c.step));
  }
  group_->broadcast(std::as_writable_bytes(std::span(position)), 0);
  done_steps_ = position[0];
  samples_ = position[1];
  ready_names_ = broadcast_text(*group_, ready_names_, 0);
  std::vector<at::Tensor> tensors = buffers();
  for (const graph::Parameter& p : executor_->parameters()) tensors.push_back(p.tensor);
  if (done_steps_ > 0) {
    for (const auto& [name, state] : optimizer_->state()) tensors.push_back(state);
  }
  broadcast_tensors(*group_, tensors);
  if (done_steps_ > 0)
    optimizer_->load_state(optimizer_->state());  // it has to notice what the broadcast wrote
  if (done_steps_ >= config_.train.steps) {
    fail(ErrorCode::usage, "train.steps = ", config_.train.steps, ", but the checkpoint is at step ",
         done_steps_, " already: raise train.steps to go on");
  }
}

void Trainer::build_sync() {
  GradientSyncOptions options{.strategy = choice_.strategy,
                              .codec = choice_.codec,
                              .min_bytes = config_.sync.min_bytes.value,
                              .seed = static_cast<uint64_t>(config_.train.seed),
                              .bucket_bytes = config_.sync.bucket_bytes.value,
                              .first_bucket_bytes = config_.sync.first_bucket_bytes.value};
  if (context_.rank == 0 && context_.world > 1) {
    for (const std::string& note : choice_.notes) log::info(note);
  }
  options.ready_order = ready_order(trained_, ready_names_);
  sync_ = std::make_unique<GradientSync>(*group_, trained_, options);
  if (done_steps_ > 0 && exchanges()) scatter_codec_state(*group_, *sync_, saved_codec_, saved_ranks_);
  saved_codec_.clear();
}

// Rank 0 writes, and of the others the first one that was given a folder.
void Trainer::open_files() {
  const std::string mine = context_.out.empty() ? "" : fs::absolute(context_.out).lexically_normal().string();
  const auto folders = gather(*group_, hash_text(mine));
  const auto first = std::find(folders.begin(), folders.end(), hash_text(mine)) - folders.begin();
  if (context_.rank == 0 || (!mine.empty() && first == context_.rank)) out_ = context_.out;
  if (!out_) return;
  files_ = std::make_unique<RunFiles>(*out_, done_steps_ + 1);
  remove_unfinished(*out_ / "checkpoints");
  writer_ = std::make_unique<CheckpointWriter>(*out_ / "checkpoints", config_.train.keep_last);
  write_file(*out_ / "config.toml", context_.resolved_config);
}

std::vector<at::Tensor> Trainer::buffers() const {
  std::vector<at::Tensor> all;
  for (const graph::Parameter& b : executor_->buffers()) all.push_back(b.tensor);
  return all;
}

// Running statistics (batch norm) follow each rank's own samples during training. Where they are used, by
// evaluation and in checkpoints, rank 0's count, on every rank.
void Trainer::share_buffers() {
  broadcast_tensors(*group_, buffers());
}

Inputs Trainer::inputs(const Dataset& dataset, std::span<const int64_t> ids) const {
  Inputs values;
  for (const at::Tensor& t : dataset.batch(ids)) values.emplace_back(t.to(device_));
  return values;
}

std::vector<int64_t> Trainer::training_ids(int64_t micro) const {
  const Order order{.samples = datasets_.training->samples(),
                    .shuffle = config_.data.shuffle,
                    .seed = static_cast<uint64_t>(config_.train.seed)};
  const int64_t position = samples_ + micro * global_batch_;
  return rank_samples(order, position, global_batch_, context_.rank, context_.world);
}

// Dropout's numbers depend on where they are used alone: a resumed run draws the same ones.
uint64_t Trainer::random_seed(int64_t step, int64_t micro) const {
  return mix(static_cast<uint64_t>(config_.train.seed), static_cast<uint64_t>(step),
             static_cast<uint64_t>(context_.rank * config_.train.accumulate + micro));
}

std::vector<uint32_t> Trainer::parameter_versions() const {
  std::vector<uint32_t> versions;
  for (const graph::Parameter& p : executor_->parameters())
    versions.push_back(static_cast<uint32_t>(p.tensor._version()));
  return versions;
}

// What a forward writes into a parameter (an embedding with max_norm does) depends on the rank's own samples.
void Trainer::check_unchanged(const std::vector<uint32_t>& versions) const {
  if (!exchanges()) return;
  const auto now = parameter_versions();
  for (size_t i = 0; i < now.size(); ++i) {
    if (now[i] == versions[i]) continue;
    fail(ErrorCode::unsupported, config_.model.graph, ": the forward changes parameter ",
         executor_->parameters()[i].name,
         " itself (as an embedding with max_norm does), so that ranks would drift apart: train it on one "
         "rank, or take that out of the model");
  }
}

// An operator finds an index out of range (a label, a token id), but it is the data that holds it.
at::Tensor Trainer::forward(const Dataset& dataset, std::span<const int64_t> ids, const Inputs& batch,
                            graph::Mode mode) {
  try {
    return executor_->run(batch, mode).at(loss_position_).toTensor();
  } catch (const Error& e) {
    const std::string what = e.what();
    const bool index =
        what.find("out of range") != std::string::npos || what.find("out of bounds") != std::string::npos;
    const std::string data = e.code() == ErrorCode::input && index ? largest_integers(dataset, ids) : "";
    if (data.empty()) throw;
    fail(ErrorCode::input, data, ": the graph does not take that; ", what);
  }
}

at::Tensor Trainer::forward_backward(int64_t step, int64_t micro, StepMetrics& metrics) {
  const std::vector<int64_t> ids = training_ids(micro);
  const Inputs batch = inputs(*datasets_.training, ids);
  at::manual_seed(random_seed(step, micro));
  Stopwatch watch;
  at::Tensor loss;
  const auto versions = parameter_versions();
  {
    const Span span(&tracer_, "main", "forward");
    loss = forward(*datasets_.training, ids, batch, graph::Mode::train);
  }
  metrics.forward_s += watch.lap();
  check_unchanged(versions);
  if (!loss.requires_grad()) {
    fail(ErrorCode::input, config_.model.graph, ": the loss does not depend on any trained parameter");
  }
  const Span span(&tracer_, "main", "backward");
  const double weight = 1.0 / static_cast<double>(config_.train.accumulate);
  tensor::translate_torch_errors(cat("backward of step ", step), [&] {
    loss.backward(at::full(loss.sizes(), weight, loss.options().requires_grad(false)));
  });
  metrics.backward_s += watch.lap();
  return loss.detach();
}

// Mean over the micro-batches; looks for the cause where it is not finite, while the weights are those that
// led to it.
double Trainer::local_loss(int64_t step, const std::vector<at::Tensor>& losses) {
  double sum = 0;
  for (size_t micro = 0; micro < losses.size(); ++micro) {
    const double loss = losses[micro].item().toDouble();
    sum += loss;
    if (std::isfinite(loss) || !bad_tensor_.empty()) continue;
    const auto m = static_cast<int64_t>(micro);
    const std::vector<int64_t> ids = training_ids(m);
    const BadTensor bad = first_bad_tensor(*executor_, *datasets_.training, ids,
                                           inputs(*datasets_.training, ids), random_seed(step, m));
    bad_tensor_ = cat("loss ", std::isnan(loss) ? "NaN" : "Inf", "; ", bad.what,
                      bad.in_data ? "; mend the data" : advice_if_diverged(step, step > 1));
  }
  return sum / static_cast<double>(losses.size());
}

void Trainer::apply_gradients(double lr_factor, StepMetrics& metrics) {
  const double limit = config_.train.clip_norm;
  std::vector<std::vector<at::Tensor>> gradients(sync_->buckets());
  const auto update = [&](size_t b) {
    Stopwatch watch;
    const Span span(&tracer_, "main", "optimizer");
    optimizer_->step(sync_->members(b), gradients[b], lr_factor);
    gradients[b].clear();
    metrics.optimizer_s += watch.lap();
  };
  for (size_t b = 0; b < sync_->buckets(); ++b) {
    metrics.exposed_comm_s += sync_->wait(b);
    gradients[b] = sync_->take_gradients(b);
    if (limit == 0) update(b);  // while later buckets still travel
  }
  if (limit == 0) return;
  Stopwatch watch;
  std::vector<at::Tensor> all;
  for (const auto& bucket : gradients) all.insert(all.end(), bucket.begin(), bucket.end());
  const double share =
      limit / (global_norm(all) + 1e-6);  // the small term is torch's, against division by zero
  if (share < 1) {
    for (const at::Tensor& g : all) {
      if (g.defined()) g.mul_(share);
    }
  }
  metrics.optimizer_s += watch.lap();
  for (size_t b = 0; b < sync_->buckets(); ++b) update(b);
}

StepMetrics Trainer::train_step(int64_t step) {
  Stopwatch whole;
  const transport::Traffic before = transport_->traffic();
  const Schedule schedule{config_.optim.schedule, config_.optim.warmup, config_.train.steps,
                          config_.optim.final_lr_share};
  const double lr_factor = factor(schedule, step - 1);
  StepMetrics m{.step = step, .lr = config_.optim.lr * lr_factor};

  std::vector<at::Tensor> losses;
  for (int64_t micro = 0; micro < config_.train.accumulate; ++micro) {
    sync_->begin_backward(static_cast<uint32_t>(step), micro == 0, micro + 1 == config_.train.accumulate);
    losses.push_back(forward_backward(step, micro, m));
  }
  const double loss = local_loss(step, losses);
  if (!std::isfinite(loss) && !exchanges()) fail_diverged(step);
  const bool asked_to_stop = context_.stop != nullptr && context_.stop->requested;
  const std::array scalars{loss, asked_to_stop ? 1.0 : 0.0};
  sync_->end_backward(scalars);
  apply_gradients(lr_factor, m);
  m.exposed_comm_s += sync_->wait_scalars();
  m.loss = sync_->scalar_mean(0);
  if (!std::isfinite(m.loss)) fail_diverged(step);
  stop_ = sync_->scalar_mean(1) > 0;  // the same on all ranks, so that all stop after the same step

  samples_ += global_batch_ * config_.train.accumulate;
  m.samples = samples_;
  m.codec_s = engine_->take_times().codec_s;
  const transport::Traffic after = transport_->traffic();
  m.bytes_sent = after.bytes_sent - before.bytes_sent;
  m.bytes_received = after.bytes_received - before.bytes_received;
  m.step_s = whole.lap();
  return m;
}

// All ranks throw the same: the first one whose loss is bad tells the others.
void Trainer::fail_diverged(int64_t step) {
  int rank = context_.rank;
  std::string where = bad_tensor_;
  if (exchanges()) {
    const auto bad = gather(*group_, uint64_t{bad_tensor_.empty() ? 0U : 1U});
    rank = static_cast<int>(std::find(bad.begin(), bad.end(), 1U) - bad.begin()) % group_->size();
    where = broadcast_text(*group_, bad_tensor_, rank);
  }
  if (where.empty())
    where = cat("the mean of the ranks' losses overflows", advice_if_diverged(step, step > 1));
  fail(ErrorCode::diverged, "step ", step, ", rank ", rank, ": ", where);
}

// Before the first update no setting of the optimizer has had a say, and a checkpoint there is only once one
// was due.
std::string Trainer::advice_if_diverged(int64_t step, bool updated) const {
  const int64_t every = config_.train.checkpoint_every;
  const bool saved = done_steps_ > 0 || (every > 0 && (step - 1) / every > 0);
  return cat(updated ? "; lower optim.lr or set train.clip_norm" : "",
             saved ? "; the last checkpoint is intact" : "");
}

std::optional<double> Trainer::evaluate(int64_t step) {
  if (!datasets_.evaluation) return {};
  const Span span(&tracer_, "main", "evaluate");
  share_buffers();
  const int64_t samples = datasets_.evaluation->samples(), size = config_.train.batch_per_rank;
  double sum = 0, counted = 0;
  for (int64_t begin = context_.rank * size; begin < samples; begin += context_.world * size) {
    std::vector<int64_t> ids(static_cast<size_t>(std::min(size, samples - begin)));
    const auto count = static_cast<int64_t>(ids.size());
    if (count < batch_range_.minimum) break;  // the graph does not take the short last batch
    std::iota(ids.begin(), ids.end(), begin);
    const Dataset& dataset = *datasets_.evaluation;
    const at::Tensor loss = forward(dataset, ids, inputs(dataset, ids), graph::Mode::evaluate);
    sum += loss.item().toDouble() * static_cast<double>(count);
    counted += static_cast<double>(count);
  }
  double all_sum = 0, all_counted = 0;
  for (const double s : gather(*group_, sum)) all_sum += s;
  for (const double c : gather(*group_, counted)) all_counted += c;
  const double loss = all_sum / all_counted;
  if (std::isfinite(loss)) return loss;
  // The training loss is finite, so the run goes on: ending it here would lose what it learned since its
  // checkpoint.
  if (context_.rank == 0)
    log::warning(cat("the evaluation loss after step ", step, " is not finite; it is left out"));
  return {};
}

void Trainer::save(int64_t step, bool last) {
  const Span span(&tracer_, "main", "checkpoint");
  // A finite loss can have a gradient that is not. Weights that it spoilt must not push out good ones.
  for (const NamedParameter& p : trained_) {
    if (const std::string bad = bad_value(p.tensor); !bad.empty()) {
      fail(ErrorCode::diverged, "step ", step, ", rank ", context_.rank, ": parameter ", p.name, " holds ",
           bad, " after the update", advice_if_diverged(step, true));
    }
  }
  share_buffers();
  const auto codec_state = gather_codec_state(*group_, *sync_);
  // A write that takes longer than the steps since it began: all wait for it. The last one ends in place.
  run_together(*group_, config_.transport.timeout, [&] {
    if (!writer_) return;
    writer_->finish();
    if (last) save_checkpoint(*out_ / "checkpoints", checkpoint(step, codec_state), config_.train.keep_last);
  });
  if (writer_ && !last) writer_->start(checkpoint(step, codec_state));
}

// What there is to save; the tensors are the live ones.
Checkpoint Trainer::checkpoint(int64_t step, std::map<std::string, at::Tensor> codec_state) const {
  Checkpoint c{.step = step,
               .samples = samples_,
               .seed = static_cast<uint64_t>(config_.train.seed),
               .graph_fingerprint = spec::fingerprint(program_->graph()),
               .world_size = context_.world,
               .optimizer = optimizer_->state(),
               .codec = std::move(codec_state)};
  for (const graph::Parameter* p : persistent()) {
    c.model[p->name] = p->tensor.detach();
    for (const std::string& alias : p->aliases) c.tied[alias] = p->name;
  }
  if (const auto order = sync_->ready_order(); !order.empty()) {
    std::vector<std::string> names;
    for (const uint64_t i : order) names.push_back(trained_[i].name);
    c.extra["ready_order"] = nlohmann::json(names).dump();
  }
  c.extra["config"] = nlohmann::json(context_.resolved_config).dump();
  return c;
}

Summary Trainer::summary(int64_t steps) const {
  Summary s{.world_size = context_.world,
            .steps = config_.train.steps,
            .final_loss = final_loss_,
            .eval_loss = eval_loss_};
  s.median_step_s = median(step_seconds_);
  const double samples = static_cast<double>(global_batch_ * config_.train.accumulate);
  s.samples_per_s = samples / s.median_step_s;
  // Backward costs two passes: one for the inputs' gradients, one for the weights'.
  s.model_flops_per_s = 3 * graph::forward_flops(program_->graph()) * s.samples_per_s /
                        static_cast<double>(batch_range_.exported);
  s.bytes_sent_per_step = bytes_sent_ / steps;
  s.codec = choice_.codec_name;
  s.strategy = context_.world == 1 ? "none" : name(choice_.strategy);
  s.transport = context_.world == 1 ? "none" : config_.transport.kind;
  s.device = to_text(to_ours(device_));
  s.peak_rss_bytes = peak_rss_bytes();
  return s;
}

bool is_due(int64_t every, int64_t step) {
  return every > 0 && step % every == 0;
}

Summary Trainer::run() {
  const int64_t first = done_steps_ + 1, last = config_.train.steps;
  Progress progress(std::cerr, steady_clock(), context_.terminal, first, last);
  if (context_.stop != nullptr) context_.stop->heeded = true;
  for (int64_t step = first; step <= last; ++step) {
    StepMetrics m = train_step(step);
    if (config_.train.check_replicas) check_replicas(*group_, trained_, step);
    if (step == last || is_due(config_.train.eval_every, step)) eval_loss_ = m.eval_loss = evaluate(step);
    if (files_) files_->add(m);
    step_seconds_.push_back(m.step_s);
    bytes_sent_ += m.bytes_sent;
    final_loss_ = m.loss;
    if (context_.rank == 0) {
      progress.step(step, m.loss, global_batch_ * config_.train.accumulate, m.bytes_sent + m.bytes_received);
    }
    const bool stops = stop_ && step < last;
    if (writer_) writer_->check();
    const bool ends = stops || step == last;
    if (ends || is_due(config_.train.checkpoint_every, step)) save(step, ends);
    if (stops) {
      fail(ErrorCode::cancelled, "stopped by a signal after step ", step,
           "; its checkpoint is written, go on with --resume ", context_.out.string());
    }
  }
  const Summary result = summary(last - first + 1);
  if (files_) files_->finish(result, tracer_.to_json());
  return result;
}

// A rank that has gone tells its reason to the rendezvous as well; the wire often reports its end first.
std::string with_reason(const Error& error, transport::Rendezvous& rendezvous) {
  std::string text = error.what();
  const bool by_peer = error.code() == ErrorCode::peer_lost || error.code() == ErrorCode::timeout;
  const auto loss = by_peer ? rendezvous.loss() : std::nullopt;
  if (loss && text.find(loss->why.message) == std::string::npos) text += cat("; ", loss->why.message);
  return text;
}

// What the others are told. All ranks have agreed on a stop by a signal, so nobody fails by it.
std::string farewell(const std::exception& e) {
  const auto* error = dynamic_cast<const Error*>(&e);
  return error != nullptr && error->code() == ErrorCode::cancelled ? "" : e.what();
}

Summary run_and_tell(const Config& config, const RankContext& context) {
  transport::Rendezvous& rendezvous = *context.rendezvous;
  Summary summary;
  try {
    Trainer trainer(config, context);
    try {
      summary = trainer.run();
    } catch (const std::exception& e) {
      rendezvous.leave(farewell(e));  // before the connections close
      throw;
    }
  } catch (const Error& e) {
    rendezvous.leave(farewell(e));
    throw Error(e.code(), with_reason(e, rendezvous));
  } catch (const std::exception& e) {
    rendezvous.leave(farewell(e));
    throw;
  }
  rendezvous.leave("");
  return summary;
}

}  // namespace

Summary train(const Config& config, const RankContext& context) {
  if (context.rendezvous) return run_and_tell(config, context);
  return Trainer(config, context).run();
}

}  // namespace trireme::train
