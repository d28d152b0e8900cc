#include "trireme/comm/group.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace trireme::comm {
namespace {

// Item numbers beside those of prepared operations.
constexpr int kCollective = transport::kItems - 1, kPair = transport::kItems - 2;

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

tensor::TensorView view(std::span<std::byte> bytes) {
  return {bytes.data(), static_cast<int64_t>(bytes.size()), spec::Dtype::u8, {}};
}

// For graphs that only read.
tensor::TensorView view(std::span<const std::byte> bytes) {
  return view(std::span<std::byte>(const_cast<std::byte*>(bytes.data()), bytes.size()));
}

void copy(std::span<const std::byte> from, std::byte* to) {
  if (!from.empty() && from.data() != to) std::memmove(to, from.data(), from.size());
}

bool is_identity(const codec::CodecPtr& codec) {
  return codec == nullptr || codec->name() == "none";
}

uint16_t checked_channel(uint16_t channel) {
  if (channel >= Group::kOwnChannels)
    fail(ErrorCode::usage, "group channel ", channel, " is not below ", Group::kOwnChannels);
  return channel;
}

}  // namespace

Group::Group(Engine& engine, std::vector<int> ranks, Channel channel)
    : engine_(&engine),
      ranks_(std::move(ranks)),
      channel_(channel.number),
      sent_(ranks_.size()),
      received_(ranks_.size()) {
  const int own = engine.transport().rank();
  const auto place = std::find(ranks_.begin(), ranks_.end(), own);
  if (place == ranks_.end()) fail(ErrorCode::usage, "rank ", own, " is not a member of the group it makes");
  rank_ = static_cast<int>(place - ranks_.begin());
  std::vector<int> sorted = ranks_;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.front() < 0 || sorted.back() >= engine.transport().size() ||
      std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    fail(ErrorCode::usage, "a group's ranks must differ and lie in 0..", engine.transport().size() - 1);
  }
}

Group::Group(Engine& engine)
    : Group(engine, all_ranks(engine.transport().size()), Channel{engine.next_channel()}) {}

Group::Group(Engine& engine, std::vector<int> ranks, uint16_t channel)
    : Group(engine, std::move(ranks), Channel{checked_channel(channel)}) {}

Group Group::subgroup(const std::vector<int>& members, uint16_t channel) const {
  std::vector<int> ranks;
  for (const int m : members) {
    if (m < 0 || m >= size()) fail(ErrorCode::usage, "subgroup member ", m, " of a group of ", size());
    ranks.push_back(ranks_[static_cast<size_t>(m)]);
  }
  return {*engine_, std::move(ranks), channel};
}

TaskGraph Group::all_reduce_graph(int64_t elements, const AllReduceOptions& options) const {
  AllReduceShape shape{rank_, size(), elements, options.mean, options.parts, is_identity(options.codec), {}};
  const codec::Traits traits = options.codec == nullptr ? codec::Traits{} : options.codec->traits();
  if (options.rounds != nullptr) {
    for (int r = 0; r < options.rounds->count(); ++r)
      shape.rounds.push_back(static_cast<int64_t>(options.rounds->elements(r)));
  } else if (!shape.identity && traits.payload == codec::Payload::summable) {
    fail(ErrorCode::usage, "codec ", options.codec->name(), " is exchanged in rounds; give them");
  }
  const bool gathers = options.strategy == Strategy::gather,
             sums = !gathers && options.strategy != Strategy::off;
  if ((gathers && !shape.rounds.empty()) || (sums && traits.payload == codec::Payload::gather_only)) {
    fail(ErrorCode::usage, "codec ", options.codec->name(),
         " cannot be exchanged by this strategy: its payloads are ", codec::name(traits.payload));
  }
  switch (options.strategy) {
    case Strategy::ring:
      return build_ring_all_reduce(shape);
    case Strategy::two_phase:
      return build_two_phase_all_reduce(shape);
    case Strategy::gather:
      shape.identity = false;
      return build_gather_all_reduce(shape);
    case Strategy::off:
      break;
  }
  return {.slots = {{Slot::Kind::data, elements}}, .tasks = {}};
}

std::unique_ptr<Operation> Group::prepare_all_reduce(const std::string& name, tensor::TensorView data,
                                                     const AllReduceOptions& options) {
  if (next_item_ >= kPair) fail(ErrorCode::usage, "more than ", kPair, " operations prepared on one group");
  return engine_->prepare({.name = name,
                           .graph = all_reduce_graph(data.size, options),
                           .data = data,
                           .codec = options.codec,
                           .codec_state = options.codec_state,
                           .rounds = options.rounds,
                           .seed = options.seed,
                           .ranks = ranks_,
                           .channel = channel_,
                           .item = next_item_++});
}

void Group::run_once(const char* name, TaskGraph graph, tensor::TensorView data,
                     const AllReduceOptions& options, int item, uint32_t step) {
  const auto operation = engine_->prepare({.name = name,
                                           .graph = std::move(graph),
                                           .data = data,
                                           .codec = options.codec,
                                           .codec_state = options.codec_state,
                                           .rounds = options.rounds,
                                           .seed = options.seed,
                                           .ranks = ranks_,
                                           .channel = channel_,
                                           .item = static_cast<uint16_t>(item)});
  operation->start(step, 0);
  operation->wait();
}

void Group::run(const char* name, TaskGraph graph, tensor::TensorView data) {
  run_once(name, std::move(graph), data, {}, kCollective, next_step_++);
}

void Group::run_pair(const char* name, TaskGraph graph, tensor::TensorView data, uint32_t step) {
  run_once(name, std::move(graph), data, {}, kPair, step);
}

void Group::all_reduce(tensor::TensorView data, const AllReduceOptions& options) {
  run_once("all-reduce", all_reduce_graph(data.size, options), data, options, kCollective, next_step_++);
}

void Group::broadcast(std::span<std::byte> data, int root) {
  if (root < 0 || root >= size()) fail(ErrorCode::usage, "broadcast from rank ", root, " of ", size());
  run("broadcast", build_broadcast(rank_, size(), root, static_cast<int64_t>(data.size())), view(data));
}

void Group::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  if (all.size() != mine.size() * ranks_.size()) {
    fail(ErrorCode::usage, "all-gather of ", size(), " x ", mine.size(), " bytes into ", all.size());
  }
  copy(mine, all.data() + static_cast<size_t>(rank_) * mine.size());
  run("all-gather", build_all_gather(rank_, size(), static_cast<int64_t>(mine.size())), view(all));
}

void Group::reduce_scatter(tensor::TensorView data, std::span<float> mine, bool mean) {
  const auto share = static_cast<int64_t>(mine.size());
  if (data.size != share * size()) {
    fail(ErrorCode::usage, "reduce-scatter of ", data.size, " elements into ", size(), " x ", share);
  }
  run("reduce-scatter", build_reduce_scatter(rank_, size(), share, mean), data);
  const auto own = data.slice(rank_ * share, share).raw();
  copy(own, reinterpret_cast<std::byte*>(mine.data()));
}

void Group::all_to_all(std::span<const std::byte> from, std::span<std::byte> to) {
  if (from.size() != to.size() || from.size() % ranks_.size() != 0) {
    fail(ErrorCode::usage, "all-to-all of ", from.size(), " bytes into ", to.size(), " among ", size(),
         " ranks");
  }
  copy(from, to.data());
  run("all-to-all", build_all_to_all(rank_, size(), static_cast<int64_t>(to.size()) / size()), view(to));
}

void Group::send(int peer, std::span<const std::byte> data) {
  check_peer(peer);
  run_pair("send", build_send(peer, static_cast<int64_t>(data.size())), view(data),
           sent_[static_cast<size_t>(peer)]++);
}

void Group::receive(int peer, std::span<std::byte> into) {
  check_peer(peer);
  run_pair("receive", build_receive(peer, static_cast<int64_t>(into.size())), view(into),
           received_[static_cast<size_t>(peer)]++);
}

void Group::check_peer(int peer) const {
  if (peer < 0 || peer >= size() || peer == rank_) {
    fail(ErrorCode::usage, "rank ", rank_, " of a group of ", size(), " has no peer ", peer);
  }
}

void Group::barrier() {
  std::vector<std::byte> all(ranks_.size());
  run("barrier", build_all_gather(rank_, size(), 1), view(std::span(all)));
}

}  // namespace trireme::comm
