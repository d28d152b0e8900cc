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
};

class Group {
 public:
  // All ranks of the transport. Every rank makes its groups in the same order: the order numbers their messages.
  explicit Group(Engine& engine);
  // The given transport ranks, in this order; `channel` is equal on all members and used by no other group.
  Group(Engine& engine, std::vector<int> ranks, uint16_t channel);

  int rank() const;
  int size() const;

  // Prepared once, started every step (gradient buckets).
  std::unique_ptr<Operation> prepare_all_reduce(const std::string& name, tensor::TensorView data, const AllReduceOptions& options);

  // Blocking forms; float32 unless said otherwise. All ranks call them in the same order.
  void all_reduce(tensor::TensorView data, const AllReduceOptions& options = {});
  void broadcast(std::span<std::byte> data, int root);            // any type; bytes equal on all ranks afterwards
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all);  // all: size x mine
  void reduce_scatter(tensor::TensorView data, std::span<float> mine, bool mean = false);
  void all_to_all(std::span<const std::byte> from, std::span<std::byte> to);   // size equal pieces
  void send(int peer, std::span<const std::byte> data);
  void receive(int peer, std::span<std::byte> into);
  void barrier();
  Group subgroup(std::vector<int> members, uint16_t channel) const;

 private:
  Engine* engine_;
  std::vector<int> ranks_;
  int rank_ = 0;
  uint16_t channel_ = 0;
  uint16_t next_item_ = 0;
  uint32_t next_step_ = 0;
};

}  // namespace trireme::comm
