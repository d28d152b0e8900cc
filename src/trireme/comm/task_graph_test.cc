#include "trireme/comm/task_graph.h"

#include <gtest/gtest.h>

namespace trireme::comm {
namespace {

TaskGraph two_sends() {
  TaskGraph g;
  g.slots = {{Slot::Kind::data, 8}};
  g.tasks = {
      {.primitive = Primitive::send, .from = 0, .elements = 4, .peer = 1, .part = 0},
      {.primitive = Primitive::send, .from = 0, .from_offset = 4, .elements = 4, .peer = 1, .part = 1}};
  return g;
}

TEST(TaskGraph, VerifyTakesWhatIsSound) {
  verify(two_sends(), 2);
}

TEST(TaskGraphDeathTest, VerifyFindsFaults) {
  auto same_part = two_sends();
  same_part.tasks[1].part = 0;
  EXPECT_DEATH(verify(same_part, 2), "sent twice");
  auto outside = two_sends();
  outside.tasks[1].elements = 5;
  EXPECT_DEATH(verify(outside, 2), "holds 8");
  auto stranger = two_sends();
  stranger.tasks[0].peer = 2;
  EXPECT_DEATH(verify(stranger, 2), "peer 2 of 2");
  auto cycle = two_sends();
  cycle.tasks[0].after = {1};
  cycle.tasks[1].after = {0};
  EXPECT_DEATH(verify(cycle, 2), "cycle");
  auto race = two_sends();
  race.tasks.push_back({.primitive = Primitive::receive, .to = 0, .to_offset = 2, .elements = 4, .peer = 1});
  EXPECT_DEATH(verify(race, 2), "race in slot 0");
}

TEST(TaskGraph, TextHasOneLineATask) {
  auto g = build_two_phase_all_reduce({.rank = 0, .size = 2, .elements = 8, .mean = true, .identity = true});
  EXPECT_EQ(to_text(g),
            "0: send 0[4:8] to 1 part 0\n"
            "1: receive 1[0:4] from 1 part 0\n"
            "2: merge 1[0:4] -> 0[0:4] x0.5 after 1\n"
            "3: send 0[0:4] to 1 part 1 after 2\n"
            "4: receive 0[4:8] from 1 part 1 after 0\n");
}

}  // namespace
}  // namespace trireme::comm
