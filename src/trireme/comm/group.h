#pragma once
// Collectives over a set of ranks: task graphs run by one engine. A Group is cheap; its engine outlives it.
#include <memory>
#include <span>
#include <vector>

#include "trireme/comm/engine.h"

namespace trireme::comm {

struct AllReduceOptions {
  Strategy strategy = Strategy::ring;
  codec::CodecPtr codec;  // null: float32
  bool mean = false;
  int parts = 1;
  // What the codec remembers; both outlive the operation. `rounds`: of summable codecs other than none.
  std::vector<std::span<float>> codec_state;
  codec::Rounds* rounds = nullptr;
  uint64_t seed = 0;  // of random codecs; equal on all ranks, another for each tensor
};

// Not thread-safe; one thread uses a group at a time. A group of one exchanges nothing and leaves its data
// untouched, whatever the codec. Error(usage) for arguments that do not fit the group.
class Group {
 public:
  // All ranks of the transport. Every rank makes its groups in the same order: the order numbers their
  // messages.
  explicit Group(Engine& engine);
  // The given transport ranks, in this order, this one among them; `channel`, below kOwnChannels, is equal on
  // all members and used by no other group.
  Group(Engine& engine, std::vector<int> ranks, uint16_t channel);
  static constexpr int kOwnChannels = 512;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }

  // Prepared once, started every step (gradient buckets); float32. All ranks prepare in the same order.
  std::unique_ptr<Operation> prepare_all_reduce(const std::string& name, tensor::TensorView data,
                                                const AllReduceOptions& options);

  // Blocking forms; float32 unless said otherwise. All ranks call them in the same order.
  void all_reduce(tensor::TensorView data, const AllReduceOptions& options = {});
  void broadcast(std::span<std::byte> data, int root);  // any type; bytes equal on all ranks afterwards
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all);  // all: size x mine
  // data: size x mine, of which the own share is overwritten with the sum (or mean), then copied to `mine`.
  void reduce_scatter(tensor::TensorView data, std::span<float> mine, bool mean = false);
  void all_to_all(std::span<const std::byte> from, std::span<std::byte> to);  // size equal pieces
  // Only the two ranks of the pair call these, in the same order.
  void send(int peer, std::span<const std::byte> data);
  void receive(int peer, std::span<std::byte> into);
  void barrier();
  // `members`: ranks within this group.
  Group subgroup(const std::vector<int>& members, uint16_t channel) const;

  // A copy would number its messages as the original does.
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  Group(Group&&) = default;
  Group& operator=(Group&&) = default;

 private:
  struct Channel {
    uint16_t number;
  };
  Group(Engine& engine, std::vector<int> ranks, Channel channel);
  // Prepares, starts and waits, on an item beside those of prepared operations.
  void run(const char* name, TaskGraph graph, tensor::TensorView data);
  void run_pair(const char* name, TaskGraph graph, tensor::TensorView data, uint32_t step);
  void run_once(const char* name, TaskGraph graph, tensor::TensorView data, const AllReduceOptions& options,
                int item, uint32_t step);
  void check_peer(int peer) const;
  TaskGraph all_reduce_graph(int64_t elements, const AllReduceOptions& options) const;

  Engine* engine_;
  std::vector<int> ranks_;
  int rank_ = 0;
  uint16_t channel_ = 0;
  uint16_t next_item_ = 0;                 // prepared operations
  uint32_t next_step_ = 0;                 // blocking collectives
  std::vector<uint32_t> sent_, received_;  // blocking transfers by peer
};

}  // namespace trireme::comm
