#pragma once
// CaSync's five primitives as a graph of tasks (HiPress, SOSP'21, section 3). A TaskGraph is a value: built
// once per tensor from topology x codec x parts by a pure function (builders), printed, tested, run many
// times by the engine.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::comm {

enum class Primitive : uint8_t { encode, decode, merge, send, receive };

// Memory of a run, by number. Slot 0 is the caller's data (float32; bytes where nothing is encoded or
// merged); the others are scratch owned by the run: values of the data's type, room for one payload, or the
// float32 numbers of one round of a summable codec (the k-th such slot: round k).
struct Slot {
  enum class Kind : uint8_t { data, values, wire, numbers } kind = Kind::data;
  int64_t elements = 0;  // elements that it holds, or whose payload it holds
  bool operator==(const Slot&) const = default;
};

// decode and merge take a payload (wire slot) or plain values: a decode of plain values is a copy. With a
// `round` encode reads all data and the numbers of the rounds before, and writes that round's; decode reads
// the numbers of all rounds and writes all data.
struct Task {
  Primitive primitive = Primitive::send;
  int32_t from = -1;                                     // slot read (encode, decode, merge, send)
  int32_t to = -1;                                       // slot written (encode, decode, merge, receive)
  int64_t from_offset = 0, to_offset = 0, elements = 0;  // in elements; a wire slot's offset is 0
  int32_t peer = -1;                                     // send, receive: rank within the group
  uint16_t part = 0;   // message number within the tensor: unique per (sender, receiver)
  float scale = 1;     // merge, decode: result *= scale (the mean's 1/n, once, at the aggregator)
  int32_t round = -1;  // encode, decode: of a summable codec's numbers
  uint16_t worker = 0, workers = 1;  // encode: which of the ranks that encode these elements at this point
  std::vector<int32_t> after;        // tasks that must have finished
  bool operator==(const Task&) const = default;
};

struct TaskGraph {
  std::vector<Slot> slots;
  std::vector<Task> tasks;
  bool operator==(const TaskGraph&) const = default;
};

// One line a task.
std::string to_text(const TaskGraph& graph);
std::string_view name(Primitive primitive);
// Fails a check on a cycle, a slot out of range, a part used twice towards a peer, or two tasks that touch
// the same memory, one of them writing, without an order between them.
void verify(const TaskGraph& graph, int group_size);

enum class Strategy : uint8_t { ring, two_phase, gather, off };

struct AllReduceShape {
  int rank = 0, size = 1;
  int64_t elements = 0;
  bool mean = false;
  int parts =
      1;  // least pieces per rank's share, so that encoding one overlaps sending another; large ones get more
  bool identity =
      false;  // the wire form is float32 itself: sent from and received into the data, nothing encoded
  // Of a summable codec: how many numbers each round has. Ring and two-phase sum those, not the data.
  std::vector<int64_t> rounds;
};
// Every replica, aggregator included, ends with the decoded form of the same bytes: bit-identical on all
// ranks.
TaskGraph build_ring_all_reduce(const AllReduceShape& shape);
TaskGraph build_two_phase_all_reduce(const AllReduceShape& shape);
// Every rank's payload goes to every rank; all decode and add them in the order of ranks.
TaskGraph build_gather_all_reduce(const AllReduceShape& shape);
// The shape's group of one exchanges and encodes nothing, whatever the codec: its data stay as they are.
TaskGraph build_broadcast(int rank, int size, int root, int64_t elements);
TaskGraph build_all_gather(int rank, int size,
                           int64_t elements_per_rank);  // slot 0: size x elements_per_rank
// Own share of slot 0 gets the sum (or mean); the rest stays.
TaskGraph build_reduce_scatter(int rank, int size, int64_t elements_per_rank, bool mean = false);
TaskGraph build_all_to_all(int rank, int size, int64_t elements_per_pair);  // in place in slot 0
TaskGraph build_send(int peer, int64_t elements);
TaskGraph build_receive(int peer, int64_t elements);

}  // namespace trireme::comm
