// Each algorithm is written as the sequential program of one rank; Program derives which tasks must wait for
// which from the memory they share, so that everything else may run at once and no builder can forget a
// dependency.
#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/comm/task_graph.h"
#include "trireme/transport/transport.h"

namespace trireme::comm {
namespace {

// Messages stay below this many elements where part numbers allow it, so that a merge starts before a whole
// share has arrived and a slow link shows progress.
constexpr int64_t kPieceElements = int64_t{1} << 18;

struct Range {
  int32_t slot = 0;
  int64_t offset = 0, elements = 0;
};

class Program {
 public:
  explicit Program(int64_t data_elements) { add_slot(Slot::Kind::data, data_elements); }

  int32_t values(int64_t elements) { return add_slot(Slot::Kind::values, elements); }
  int32_t wire(int64_t elements) { return add_slot(Slot::Kind::wire, elements); }

  int32_t numbers(int64_t elements) { return add_slot(Slot::Kind::numbers, elements); }

  void encode(const Range& from, int32_t wire, int worker = 0, int workers = 1) {
    compute(Primitive::encode, from, {wire, 0, from.elements}, 1, worker, workers);
  }
  // Rounds of a summable codec: `slots` are those of all rounds so far.
  void encode_round(const std::vector<int32_t>& slots) {
    add({.primitive = Primitive::encode,
         .from = 0,
         .to = slots.back(),
         .elements = graph_.slots[0].elements,
         .round = static_cast<int32_t>(slots.size()) - 1},
        {slots.begin(), slots.end() - 1});
  }
  void decode_rounds(const std::vector<int32_t>& slots) {
    add({.primitive = Primitive::decode,
         .from = slots.back(),
         .to = 0,
         .elements = graph_.slots[0].elements,
         .round = static_cast<int32_t>(slots.size()) - 1},
        {slots.begin(), slots.end() - 1});
  }
  void decode(int32_t from, const Range& to) { compute(Primitive::decode, {from, 0, to.elements}, to, 1); }
  void merge(int32_t from, const Range& to, float scale) {
    compute(Primitive::merge, {from, 0, to.elements}, to, scale);
  }
  void send(const Range& from, int peer, int part) {
    if (from.elements == 0) return;
    Task t{.primitive = Primitive::send,
           .from = from.slot,
           .from_offset = from.offset,
           .elements = from.elements};
    address(t, peer, part);
  }
  void receive(const Range& to, int peer, int part) {
    if (to.elements == 0) return;
    Task t{.primitive = Primitive::receive, .to = to.slot, .to_offset = to.offset, .elements = to.elements};
    address(t, peer, part);
  }
  TaskGraph take() { return std::move(graph_); }

 private:
  struct Access {
    int32_t task;
    int64_t begin, end;
    bool write;
  };

  int32_t add_slot(Slot::Kind kind, int64_t elements) {
    graph_.slots.push_back({kind, elements});
    history_.emplace_back();
    return static_cast<int32_t>(graph_.slots.size() - 1);
  }

  void compute(Primitive primitive, const Range& from, const Range& to, float scale, int worker = 0,
               int workers = 1) {
    if (to.elements == 0) return;
    add({.primitive = primitive,
         .from = from.slot,
         .to = to.slot,
         .from_offset = from.offset,
         .to_offset = to.offset,
         .elements = to.elements,
         .scale = scale,
         .worker = static_cast<uint16_t>(worker),
         .workers = static_cast<uint16_t>(workers)});
  }

  void address(Task t, int peer, int part) {
    TRIREME_CHECK(part >= 0 && part < transport::kParts, "part ", part);
    t.peer = peer;
    t.part = static_cast<uint16_t>(part);
    add(std::move(t));
  }

  void add(Task t, const std::vector<int32_t>& also_read = {}) {
    if (t.from >= 0) touch(t, t.from, t.from_offset, false);
    for (const int32_t slot : also_read) touch(t, slot, 0, false);
    if (t.to >= 0) touch(t, t.to, t.to_offset, true);
    std::sort(t.after.begin(), t.after.end());
    t.after.erase(std::unique(t.after.begin(), t.after.end()), t.after.end());
    graph_.tasks.push_back(std::move(t));
  }

  // Waits for earlier tasks on overlapping memory unless both only read, and notes this one. A write orders
  // all that came before it on its range, so what lies inside that range need not be remembered.
  void touch(Task& t, int32_t slot, int64_t offset, bool write) {
    const bool whole = graph_.slots[static_cast<size_t>(slot)].kind == Slot::Kind::wire || t.round >= 0;
    const auto self = static_cast<int32_t>(graph_.tasks.size());
    const Access mine{self, whole ? 0 : offset,
                      whole ? graph_.slots[static_cast<size_t>(slot)].elements : offset + t.elements, write};
    auto& history = history_[static_cast<size_t>(slot)];
    for (const Access& past : history) {
      const bool overlap = past.begin < mine.end && mine.begin < past.end;
      if (overlap && (past.write || write) && past.task != self) t.after.push_back(past.task);
    }
    if (write) {
      std::erase_if(history,
                    [&](const Access& past) { return past.begin >= mine.begin && past.end <= mine.end; });
    }
    history.push_back(mine);
  }

  TaskGraph graph_;
  std::vector<std::vector<Access>> history_;  // by slot
};

int64_t border(int64_t elements, int64_t count, int64_t index) {
  return elements * index / count;
}

// The pieces of every rank's share of a tensor.
struct Shares {
  int64_t elements;
  int ranks, parts;
  int32_t slot = 0;
  int first_part = 0;  // of the part numbers that this exchange uses

  Range piece(int rank, int part) const {
    const int64_t begin = border(elements, ranks, rank), share = border(elements, ranks, rank + 1) - begin;
    const int64_t from = border(share, parts, part), to = border(share, parts, part + 1);
    return {slot, begin + from, to - from};
  }
  int64_t largest() const {
    const int64_t share = (elements + ranks - 1) / ranks;
    return (share + parts - 1) / parts;
  }
};

// At least `wanted` parts of `elements`, more for large tensors; `messages_per_part` part numbers are used
// for each.
int choose_parts(int64_t elements, int64_t wanted, int64_t messages_per_part) {
  const int64_t most = transport::kParts / std::max<int64_t>(messages_per_part, 1);
  if (wanted < 1 || wanted > most)
    fail(ErrorCode::usage, "all-reduce in ", wanted, " parts: take 1 to ", most);
  return static_cast<int>(std::clamp((elements + kPieceElements - 1) / kPieceElements, wanted, most));
}

int wrap(int rank, int size) {
  return ((rank % size) + size) % size;
}

// Two scratch slots per part, used by turns: a transfer may run while the one before it is being merged.
class Pairs {
 public:
  Pairs(Program& program, int parts, int uses, int64_t elements, bool identity) : depth_(std::min(uses, 2)) {
    for (int i = 0; i < parts * depth_; ++i) {
      slots_.push_back(identity ? program.values(elements) : program.wire(elements));
    }
  }
  int32_t operator()(int part, int use) const {
    return slots_[static_cast<size_t>(part * depth_ + use % depth_)];
  }

 private:
  int depth_;
  std::vector<int32_t> slots_;
};

Range in(int32_t slot, const Range& like) {
  return {slot, 0, like.elements};
}

float mean_scale(const AllReduceShape& s) {
  return s.mean ? 1.0f / static_cast<float>(s.size) : 1.0f;
}

// Phase one: share c travels from rank c + 1 round the ring to its owner c, gaining a rank's data at every
// hop.
void ring_reduce(Program& program, const AllReduceShape& s, const Shares& shares) {
  const int next = wrap(s.rank + 1, s.size), previous = wrap(s.rank - 1, s.size), hops = s.size - 1;
  const Pairs received(program, shares.parts, hops, shares.largest(), s.identity);
  const Pairs encoded(program, s.identity ? 0 : shares.parts, hops, shares.largest(), s.identity);
  for (int hop = 0; hop < hops; ++hop) {
    for (int p = 0; p < shares.parts; ++p) {
      const int part = shares.first_part + hop * shares.parts + p;
      const Range out = shares.piece(wrap(s.rank - 1 - hop, s.size), p);
      const Range mine = shares.piece(wrap(s.rank - 2 - hop, s.size), p);
      if (s.identity) {
        program.send(out, next, part);
      } else {
        program.encode(out, encoded(p, hop));
        program.send(in(encoded(p, hop), out), next, part);
      }
      program.receive(in(received(p, hop), mine), previous, part);
      program.merge(received(p, hop), mine, hop == hops - 1 ? mean_scale(s) : 1.0f);
    }
  }
}

// Phase two: every owner's finished share goes round; its bytes are relayed as they came, never encoded
// again.
void ring_gather(Program& program, const AllReduceShape& s, const Shares& shares) {
  const int next = wrap(s.rank + 1, s.size), previous = wrap(s.rank - 1, s.size), hops = s.size - 1;
  const Pairs own(program, s.identity ? 0 : shares.parts, 1, shares.largest(), s.identity);
  const Pairs passing(program, s.identity ? 0 : shares.parts, hops, shares.largest(), s.identity);
  for (int hop = 0; hop < hops; ++hop) {
    for (int p = 0; p < shares.parts; ++p) {
      const int part = shares.first_part + (hops + hop) * shares.parts + p;
      const Range out = shares.piece(wrap(s.rank - hop, s.size), p);
      const Range other = shares.piece(wrap(s.rank - 1 - hop, s.size), p);
      if (s.identity) {
        program.send(out, next, part);
        program.receive(other, previous, part);
        continue;
      }
      if (hop == 0) {
        program.encode(out, own(p, 0));
        program.send(in(own(p, 0), out), next, part);
        program.decode(own(p, 0), out);
      } else {
        program.send(in(passing(p, hop - 1), out), next, part);
      }
      program.receive(in(passing(p, hop), other), previous, part);
      program.decode(passing(p, hop), other);
    }
  }
}

// Phase one: every rank sends each owner its share directly; owners merge in a fixed order, so that equal
// inputs give equal bits.
void direct_reduce(Program& program, const AllReduceShape& s, const Shares& shares) {
  const int peers = s.size - 1;
  const Pairs received(program, shares.parts, peers, shares.largest(), s.identity);
  const Pairs encoded(program, s.identity ? 0 : shares.parts, peers, shares.largest(), s.identity);
  for (int k = 1; k < s.size; ++k) {
    const int to = wrap(s.rank + k, s.size), from = wrap(s.rank - k, s.size);
    for (int p = 0; p < shares.parts; ++p) {
      const Range out = shares.piece(to, p), mine = shares.piece(s.rank, p);
      const int part = shares.first_part + p;
      if (s.identity) {
        program.send(out, to, part);
      } else {
        // The owner's own share is not encoded: the others are `peers` workers.
        program.encode(out, encoded(p, k), s.rank - (s.rank > to ? 1 : 0), peers);
        program.send(in(encoded(p, k), out), to, part);
      }
      program.receive(in(received(p, k), mine), from, part);
      program.merge(received(p, k), mine, k == peers ? mean_scale(s) : 1.0f);
    }
  }
}

void direct_gather(Program& program, const AllReduceShape& s, const Shares& shares) {
  const Pairs own(program, s.identity ? 0 : shares.parts, 1, shares.largest(), s.identity);
  const Pairs received(program, s.identity ? 0 : shares.parts, s.size - 1, shares.largest(), s.identity);
  for (int p = 0; p < shares.parts && !s.identity; ++p) {
    program.encode(shares.piece(s.rank, p), own(p, 0));
    program.decode(own(p, 0), shares.piece(s.rank, p));
  }
  for (int k = 1; k < s.size; ++k) {
    const int to = wrap(s.rank + k, s.size), from = wrap(s.rank - k, s.size);
    for (int p = 0; p < shares.parts; ++p) {
      const Range mine = shares.piece(s.rank, p), other = shares.piece(from, p);
      const int part = shares.first_part + shares.parts + p;
      program.send(s.identity ? mine : in(own(p, 0), mine), to, part);
      if (s.identity) {
        program.receive(other, from, part);
      } else {
        program.receive(in(received(p, k), other), from, part);
        program.decode(received(p, k), other);
      }
    }
  }
}

// Pieces of a plain transfer.
struct Pieces {
  explicit Pieces(int64_t n) : elements(n) {
    count = static_cast<int>(std::min<int64_t>((n + kPieceElements - 1) / kPieceElements, transport::kParts));
  }
  Range operator()(int64_t offset, int part) const {
    const int64_t from = border(elements, count, part), to = border(elements, count, part + 1);
    return {0, offset + from, to - from};
  }
  int64_t elements;
  int count;
};

}  // namespace

namespace {

using Exchange = void (*)(Program&, const AllReduceShape&, const Shares&);

// A sum over ranks by `exchange`, which uses `messages` part numbers per part: of the data, or round by round
// of a summable codec's numbers.
TaskGraph build_sum(const AllReduceShape& shape, int64_t messages, Exchange exchange) {
  Program program(shape.elements);
  if (shape.size == 1 || shape.elements == 0) return program.take();
  const auto shares_of = [&](int64_t elements, int64_t exchanges) {
    const int64_t share = (elements + shape.size - 1) / shape.size;
    return Shares{elements, shape.size, choose_parts(share, shape.parts, messages * exchanges)};
  };
  if (shape.rounds.empty()) {
    exchange(program, shape, shares_of(shape.elements, 1));
    return program.take();
  }
  AllReduceShape numbers = shape;
  numbers.identity = true;
  std::vector<int32_t> slots;
  int first_part = 0;
  for (const int64_t elements : shape.rounds) {
    slots.push_back(program.numbers(elements));
    program.encode_round(slots);
    Shares shares = shares_of(elements, static_cast<int64_t>(shape.rounds.size()));
    shares.slot = slots.back();
    shares.first_part = first_part;
    first_part += static_cast<int>(messages) * shares.parts;
    exchange(program, numbers, shares);
  }
  program.decode_rounds(slots);
  return program.take();
}

void ring(Program& program, const AllReduceShape& shape, const Shares& shares) {
  ring_reduce(program, shape, shares);
  ring_gather(program, shape, shares);
}
void direct(Program& program, const AllReduceShape& shape, const Shares& shares) {
  direct_reduce(program, shape, shares);
  direct_gather(program, shape, shares);
}

}  // namespace

TaskGraph build_ring_all_reduce(const AllReduceShape& shape) {
  return build_sum(shape, 2 * (shape.size - 1), ring);
}

TaskGraph build_two_phase_all_reduce(const AllReduceShape& shape) {
  return build_sum(shape, 2, direct);
}

TaskGraph build_gather_all_reduce(const AllReduceShape& shape) {
  Program program(shape.elements);
  if (shape.size == 1 || shape.elements == 0) return program.take();
  const Shares pieces{shape.elements, 1, choose_parts(shape.elements, shape.parts, 1)};
  for (int p = 0; p < pieces.parts; ++p) {
    const Range piece = pieces.piece(0, p);
    std::vector<int32_t> payloads;  // by rank
    for (int r = 0; r < shape.size; ++r) payloads.push_back(program.wire(piece.elements));
    const int32_t own = payloads[static_cast<size_t>(shape.rank)];
    program.encode(piece, own, shape.rank, shape.size);
    for (int k = 1; k < shape.size; ++k) {
      const int to = wrap(shape.rank + k, shape.size), from = wrap(shape.rank - k, shape.size);
      program.send(in(own, piece), to, p);
      program.receive(in(payloads[static_cast<size_t>(from)], piece), from, p);
    }
    program.decode(payloads[0], piece);
    for (int r = 1; r < shape.size; ++r)
      program.merge(payloads[static_cast<size_t>(r)], piece, r == shape.size - 1 ? mean_scale(shape) : 1.0f);
  }
  return program.take();
}

// A chain from the root: with pieces in a pipeline every link carries the data once.
TaskGraph build_broadcast(int rank, int size, int root, int64_t elements) {
  Program program(elements);
  const Pieces pieces(elements);
  const int place = wrap(rank - root, size);
  for (int p = 0; p < pieces.count; ++p) {
    if (place > 0) program.receive(pieces(0, p), wrap(rank - 1, size), p);
    if (place < size - 1) program.send(pieces(0, p), wrap(rank + 1, size), p);
  }
  return program.take();
}

TaskGraph build_all_gather(int rank, int size, int64_t elements_per_rank) {
  Program program(elements_per_rank * size);
  const Pieces pieces(elements_per_rank);
  for (int k = 1; k < size; ++k) {
    const int to = wrap(rank + k, size), from = wrap(rank - k, size);
    for (int p = 0; p < pieces.count; ++p) {
      program.send(pieces(rank * elements_per_rank, p), to, p);
      program.receive(pieces(from * elements_per_rank, p), from, p);
    }
  }
  return program.take();
}

TaskGraph build_reduce_scatter(int rank, int size, int64_t elements_per_rank, bool mean) {
  const AllReduceShape shape{rank, size, elements_per_rank * size, mean, 1, true};
  Program program(shape.elements);
  if (size == 1) return program.take();
  direct_reduce(program, shape, {shape.elements, size, choose_parts(elements_per_rank, 1, 1)});
  return program.take();
}

TaskGraph build_all_to_all(int rank, int size, int64_t elements_per_pair) {
  Program program(elements_per_pair * size);
  const Pieces pieces(elements_per_pair);
  // Into scratch first: were a receive to wait for the send of the place it overwrites, two ranks could wait
  // for each other.
  for (int k = 1; k < size; ++k) {
    const int to = wrap(rank + k, size), from = wrap(rank - k, size);
    for (int p = 0; p < pieces.count; ++p) {
      const Range out = pieces(to * elements_per_pair, p), into = pieces(from * elements_per_pair, p);
      const int32_t scratch = program.values(into.elements);
      program.send(out, to, p);
      program.receive(in(scratch, into), from, p);
    }
  }
  int32_t scratch = 1;
  for (int k = 1; k < size; ++k) {
    const int from = wrap(rank - k, size);
    for (int p = 0; p < pieces.count; ++p) program.decode(scratch++, pieces(from * elements_per_pair, p));
  }
  return program.take();
}

TaskGraph build_send(int peer, int64_t elements) {
  Program program(elements);
  const Pieces pieces(elements);
  for (int p = 0; p < pieces.count; ++p) program.send(pieces(0, p), peer, p);
  return program.take();
}

TaskGraph build_receive(int peer, int64_t elements) {
  Program program(elements);
  const Pieces pieces(elements);
  for (int p = 0; p < pieces.count; ++p) program.receive(pieces(0, p), peer, p);
  return program.take();
}

}  // namespace trireme::comm
