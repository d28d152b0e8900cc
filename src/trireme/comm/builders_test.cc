#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "trireme/base/error.h"
#include "trireme/comm/task_graph.h"

namespace trireme::comm {
namespace {

using Build = std::function<TaskGraph(int rank)>;

// Every message that one rank sends is expected by its receiver, with the same length.
void expect_matched(int size, const Build& build) {
  std::map<std::tuple<int, int, int>, int64_t> sent, expected;
  for (int r = 0; r < size; ++r) {
    const TaskGraph g = build(r);
    verify(g, size);
    for (const Task& t : g.tasks) {
      if (t.primitive == Primitive::send) sent[{r, t.peer, t.part}] = t.elements;
      if (t.primitive == Primitive::receive) expected[{t.peer, r, t.part}] = t.elements;
    }
  }
  EXPECT_EQ(sent, expected);
}

int64_t count(const TaskGraph& g, Primitive p) {
  return std::count_if(g.tasks.begin(), g.tasks.end(), [&](const Task& t) { return t.primitive == p; });
}

TEST(Builders, MessagesMatchAndNothingRaces) {
  for (int size = 1; size <= 6; ++size) {
    for (int64_t elements : {0, 1, 2, 3, 5, 6, 7, 17, 64, 65}) {
      for (int parts : {1, 2, 3, 7}) {
        for (bool identity : {false, true}) {
          const auto shape = [&](int rank) {
            return AllReduceShape{rank, size, elements, true, parts, identity};
          };
          expect_matched(size, [&](int r) { return build_ring_all_reduce(shape(r)); });
          expect_matched(size, [&](int r) { return build_two_phase_all_reduce(shape(r)); });
        }
      }
      expect_matched(size, [&](int r) { return build_broadcast(r, size, size / 2, elements); });
      expect_matched(size, [&](int r) { return build_all_gather(r, size, elements); });
      expect_matched(size, [&](int r) { return build_reduce_scatter(r, size, elements); });
      expect_matched(size, [&](int r) { return build_all_to_all(r, size, elements); });
    }
  }
}

// Critical counts of CaSync's ring: 2(n-1) sends, n encodes, n decodes (merges count as decodes).
TEST(Builders, RingDoesNotEncodeWhatItRelays) {
  for (int n = 2; n <= 6; ++n) {
    const auto g = build_ring_all_reduce({.rank = 1, .size = n, .elements = 64});
    EXPECT_EQ(count(g, Primitive::send), 2 * (n - 1));
    EXPECT_EQ(count(g, Primitive::encode), n);
    EXPECT_EQ(count(g, Primitive::merge), n - 1);
    EXPECT_EQ(count(g, Primitive::decode), n);  // its own finished share and n - 1 others
  }
}

TEST(Builders, IdentityCopiesNothing) {
  for (const auto& g :
       {build_ring_all_reduce({.rank = 0, .size = 4, .elements = 64, .identity = true}),
        build_two_phase_all_reduce({.rank = 0, .size = 4, .elements = 64, .identity = true})}) {
    EXPECT_EQ(count(g, Primitive::encode) + count(g, Primitive::decode), 0);
    for (const Task& t : g.tasks) {
      EXPECT_TRUE(t.primitive != Primitive::send || t.from == 0);
    }
  }
}

TEST(Builders, LargeSharesAreCut) {
  const int64_t elements = int64_t{2} << 20;
  const auto g = build_ring_all_reduce({.rank = 0, .size = 2, .elements = elements, .identity = true});
  EXPECT_EQ(count(g, Primitive::send), 8);  // 2 phases x 1 Mi elements in 256 Ki pieces
  // Part numbers end somewhere: the pieces of a huge tensor are larger, not more.
  const auto huge = build_broadcast(0, 2, 0, int64_t{1} << 40);
  EXPECT_EQ(count(huge, Primitive::send), 8192);
}

TEST(Builders, RefusesImpossibleParts) {
  EXPECT_THROW(build_ring_all_reduce({.size = 2, .elements = 8, .parts = 0}), Error);
  EXPECT_THROW(build_ring_all_reduce({.size = 2, .elements = 8, .parts = 5000}), Error);
}

}  // namespace
}  // namespace trireme::comm
