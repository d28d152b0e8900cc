#include <cstring>
#include <utility>

#include "trireme/base/rng.h"
#include "trireme/comm/engine_state.h"

namespace trireme::comm {
namespace {

void scale(std::span<float> values, float factor) {
  if (factor == 1) return;
  for (float& v : values) v *= factor;
}

void add(std::span<const float> from, std::span<float> to) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

std::span<float> floats(std::span<std::byte> bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

bool computes(const Task& t) {
  return t.primitive != Primitive::send && t.primitive != Primitive::receive;
}

}  // namespace

Run::Run(std::shared_ptr<EngineState> engine, Engine::Description description)
    : engine_(std::move(engine)),
      description_(std::move(description)),
      successors_(description_.graph.tasks.size()),
      pending_(description_.graph.tasks.size()) {
  auto& d = description_;
  if (d.codec == nullptr) d.codec = codec::make_none();
  fixed_size_ = d.codec->traits().fixed_size;
  lengths_.resize(d.graph.slots.size());
  TRIREME_CHECK(d.graph.slots.at(0).elements == d.data.size, d.name, ": ", d.data.size,
                " elements for a graph of ", d.graph.slots[0].elements);
  slots_.push_back(static_cast<std::byte*>(d.data.data));
  for (size_t i = 1; i < d.graph.slots.size(); ++i) {
    const Slot& slot = d.graph.slots[i];
    const bool wire = slot.kind == Slot::Kind::wire;
    scratch_.push_back(
        wire ? tensor::Buffer(static_cast<int64_t>(d.codec->wire_bound(static_cast<size_t>(slot.elements))),
                              spec::Dtype::u8)
             : tensor::Buffer(slot.elements, d.data.dtype));
    slots_.push_back(static_cast<std::byte*>(scratch_.back().view().data));
    if (slot.kind == Slot::Kind::numbers) numbers_.push_back(scratch_.back().view().as<float>());
  }
  for (size_t i = 0; i < d.graph.tasks.size(); ++i) {
    const Task& t = d.graph.tasks[i];
    for (const int32_t before : t.after)
      successors_[static_cast<size_t>(before)].push_back(static_cast<int32_t>(i));
    const bool copies = t.primitive == Primitive::decode && !is_wire(t.from) && t.scale == 1;
    TRIREME_CHECK(!computes(t) || copies || d.data.dtype == spec::Dtype::f32, d.name,
                  ": only float32 is encoded or merged");
    if (!computes(t))
      transport::to_tag(0, message(static_cast<int32_t>(i)));  // numbers out of range: here, not in a thread
  }
}

// The engine's threads use this object's memory until the run has ended.
Run::~Run() {
  std::unique_lock lock(mutex_);
  if (running_)
    engine_->end_with({ErrorCode::cancelled, cat(description_.name, " was dropped while it ran")});
  stopped_.wait(lock, [&] { return !running_; });
}

bool Run::is_wire(int32_t slot) const {
  return description_.graph.slots[static_cast<size_t>(slot)].kind == Slot::Kind::wire;
}

std::span<std::byte> Run::bytes(const Task& task, int32_t slot, int64_t offset) const {
  const auto elements = static_cast<size_t>(task.elements);
  std::byte* base = slots_[static_cast<size_t>(slot)];
  if (is_wire(slot)) {
    const bool whole_room = fixed_size_ || task.primitive == Primitive::encode;
    return {base,
            whole_room ? description_.codec->wire_bound(elements) : lengths_[static_cast<size_t>(slot)]};
  }
  const size_t size = spec::size_of(description_.data.dtype);
  return {base + static_cast<size_t>(offset) * size, elements * size};
}

transport::MessageId Run::message(int32_t t) const {
  return {description_.channel, step_, description_.item, task(t).part};
}

void Run::use(void* data) {
  std::lock_guard lock(mutex_);
  TRIREME_CHECK(!running_, description_.name, " got other memory while it ran");
  slots_[0] = static_cast<std::byte*>(data);
}

void Run::start(uint32_t step, int priority) {
  {
    std::lock_guard lock(mutex_);
    TRIREME_CHECK(!running_, description_.name, " started twice");
    running_ = true;
  }
  engine_->run_begins();
  const auto& tasks = description_.graph.tasks;
  step_ = step;
  priority_ = priority;
  last_progress_ = engine_->now().count();
  for (size_t i = 0; i < tasks.size(); ++i) pending_[i] = static_cast<int32_t>(tasks[i].after.size());
  remaining_ = static_cast<int32_t>(tasks.size());
  in_flight_ = 1;  // ours, until all that can start has started
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (tasks[i].after.empty()) launch(static_cast<int32_t>(i));
  }
  release();
}

bool Run::done() const {
  std::lock_guard lock(mutex_);
  return !running_;
}

void Run::wait() {
  {
    std::unique_lock lock(mutex_);
    stopped_.wait(lock, [&] { return !running_; });  // ends: the engine fails what makes no progress
  }
  if (remaining_ == 0) return;
  const Failure why = engine_->failure();
  throw Error(why.code, why.message);
}

void Run::launch(int32_t t) {
  if (engine_->failed()) return;
  ++in_flight_;
  if (computes(task(t))) {
    engine_->queue.submit(priority_, [this, t] { compute(t); });
  } else {
    engine_->post(this, t);
  }
}

void Run::compute(int32_t t) {
  bool ok = false;
  if (!engine_->failed()) {
    const auto begin = engine_->now();
    try {
      Span span(engine_->options.tracer, "compute",
                cat(description_.name, " ", comm::name(task(t).primitive)));
      apply(t, task(t));
      ok = true;
    } catch (const Error& e) {
      engine_->end_with({e.code(), cat("rank ", engine_->transport.rank(), ": ", description_.name, ": ",
                                       comm::name(task(t).primitive), ": ", e.what())});
    } catch (const std::exception& e) {
      engine_->end_with({ErrorCode::internal, cat("rank ", engine_->transport.rank(), ": ", description_.name,
                                                  ": ", comm::name(task(t).primitive), ": ", e.what())});
    }
    engine_->codec_nanoseconds += (engine_->now() - begin).count();
  }
  ended(t, ok);
}

uint32_t* Run::length_to_announce(int32_t t) {
  const int32_t slot = task(t).primitive == Primitive::send ? task(t).from : task(t).to;
  return !fixed_size_ && is_wire(slot) ? &lengths_[static_cast<size_t>(slot)] : nullptr;
}

Status Run::check_length(int32_t t) const {
  const size_t length = lengths_[static_cast<size_t>(task(t).to)];
  const size_t bound = description_.codec->wire_bound(static_cast<size_t>(task(t).elements));
  if (length <= bound) return ok_status();
  return Failure{ErrorCode::input, cat("a payload of ", length, " bytes is announced, at most ", bound,
                                       " are possible: do all ranks run the same program?")};
}

// Seeds depend on what is encoded and when, not on how many operations were prepared before: a resumed run
// draws the same numbers, and nothing has to be saved.
codec::Call Run::call_of(int32_t t) const {
  codec::Call call;
  call.shared_seed =
      mix(mix(description_.seed, step_, description_.channel), static_cast<uint64_t>(task(t).from_offset));
  call.seed =
      mix(call.shared_seed, static_cast<uint64_t>(engine_->transport.rank()), static_cast<uint64_t>(t));
  call.worker = task(t).worker;
  call.workers = task(t).workers;
  call.step = step_;
  return call;
}

void Run::encode(int32_t t) {
  const Task& task = this->task(t);
  const codec::Codec& codec = *description_.codec;
  std::vector<std::span<float>> state;
  for (const auto& whole : description_.codec_state) {
    TRIREME_CHECK(task.from == 0, "only the data have a state");
    state.push_back(whole.subspan(static_cast<size_t>(task.from_offset), static_cast<size_t>(task.elements)));
  }
  const auto to = bytes_written(t);
  const size_t used = codec.encode(floats(bytes_read(t)), to, call_of(t), state);
  TRIREME_CHECK(used == to.size() || (!fixed_size_ && used < to.size()), "codec ", codec.name(), " made ",
                used, " of ", to.size(), " bytes");
  lengths_[static_cast<size_t>(task.to)] = static_cast<uint32_t>(used);
}

void Run::apply_round(int32_t t) {
  const Task& task = this->task(t);
  const std::vector<std::span<const float>> means(numbers_.begin(), numbers_.end());
  const auto round = static_cast<size_t>(task.round);
  codec::Call call = call_of(t);
  call.shared_seed = mix(description_.seed, step_, description_.channel);  // the same in all rounds
  if (task.primitive == Primitive::encode) {
    description_.rounds->encode(task.round, floats(bytes_read(t)), std::span(means).first(round),
                                numbers_[round], call);
  } else {
    description_.rounds->decode(means, floats(bytes_written(t)), call);
    description_.rounds->finish(means, call);
  }
}

void Run::apply(int32_t t, const Task& task) {
  if (task.round >= 0) return apply_round(t);
  const codec::Codec& codec = *description_.codec;
  if (task.primitive == Primitive::encode) return encode(t);
  const auto from = bytes_read(t), to = bytes_written(t);
  if (task.primitive == Primitive::decode) {
    if (is_wire(task.from))
      codec.decode(from, floats(to));
    else
      std::memcpy(to.data(), from.data(), to.size());
  } else {
    if (is_wire(task.from))
      codec.decode_add(from, floats(to));
    else
      add(floats(from), floats(to));
  }
  if (task.scale != 1) scale(floats(to), task.scale);
}

void Run::ended(int32_t t, bool ok) {
  if (ok) {
    last_progress_ = engine_->now().count();
    for (const int32_t s : successors_[static_cast<size_t>(t)]) {
      if (--pending_[static_cast<size_t>(s)] == 0) launch(s);
    }
    --remaining_;
  }
  release();
}

void Run::release() {
  if (--in_flight_ > 0) return;
  engine_->run_ends();
  std::lock_guard lock(mutex_);
  running_ = false;
  stopped_.notify_all();  // under the lock: the waiter may destroy this object as soon as it can take it
}

}  // namespace trireme::comm
