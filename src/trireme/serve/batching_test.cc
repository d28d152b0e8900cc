#include "trireme/serve/batching.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "trireme/serve/admission.h"

namespace trireme::serve {
namespace {

using namespace std::chrono_literals;

std::vector<Waiting> queue(std::initializer_list<Waiting> list) {
  return list;
}

TEST(Batching, ABatchClosesWhenItIsFull) {
  const Batching b{4, 10ms};
  const auto decision = choose_batch(queue({{1, 2, 0, 0ms}, {2, 2, 0, 1ms}, {3, 1, 0, 1ms}}), b, 1ms);
  EXPECT_EQ(decision.run, (std::vector<size_t>{0, 1}));
}

TEST(Batching, ABatchClosesWhenItsFirstRequestHasWaited) {
  const Batching b{4, 10ms};
  const auto early = choose_batch(queue({{1, 1, 0, 0ms}, {2, 1, 0, 5ms}}), b, 9ms);
  EXPECT_TRUE(early.run.empty());
  EXPECT_EQ(early.look_again, Time(10ms));
  EXPECT_EQ(choose_batch(queue({{1, 1, 0, 0ms}, {2, 1, 0, 5ms}}), b, 10ms).run, (std::vector<size_t>{0, 1}));
}

TEST(Batching, AnEmptyQueueWaitsForNothing) {
  const auto decision = choose_batch({}, {4, 10ms}, 0ms);
  EXPECT_TRUE(decision.run.empty());
  EXPECT_FALSE(decision.look_again);
}

TEST(Batching, ShapesThatCannotBeJoinedAreNot) {
  const Batching b{3, 10ms};
  const auto q = queue({{1, 1, 7, 0ms}, {2, 1, 8, 1ms}, {3, 1, 8, 2ms}, {4, 1, 8, 3ms}});
  EXPECT_EQ(choose_batch(q, b, 4ms).run, (std::vector<size_t>{1, 2, 3}));  // full, though it came later
  EXPECT_EQ(choose_batch(q, b, 10ms).run, (std::vector<size_t>{0}));       // its wait is over
}

TEST(Batching, ARequestLargerThanTheLimitRunsAlone) {
  EXPECT_EQ(choose_batch(queue({{1, 9, 0, 0ms}, {2, 1, 0, 0ms}}), {4, 10ms}, 0ms).run,
            (std::vector<size_t>{0}));
}

TEST(Batching, WithoutAWaitTheFirstGoesAtOnce) {
  EXPECT_EQ(choose_batch(queue({{1, 1, 0, 0ms}}), {4, 0ms}, 0ms).run, (std::vector<size_t>{0}));
}

RC_GTEST_PROP(BatchingProperties, BatchesHoldOneShapeWithinTheRowsAndNobodyWaitsTooLong, ()) {
  const auto size = *rc::gen::inRange<size_t>(0, 20);
  std::vector<Waiting> q;
  Time at{0};
  for (size_t i = 0; i < size; ++i) {
    at += Time(*rc::gen::inRange(0, 5));
    q.push_back({i, *rc::gen::inRange<int64_t>(1, 4), *rc::gen::inRange<uint64_t>(0, 3), at});
  }
  const Batching b{*rc::gen::inRange<int64_t>(1, 9), Time(*rc::gen::inRange(0, 20))};
  const Time now = at + Time(*rc::gen::inRange(0, 20));
  const auto decision = choose_batch(q, b, now);
  int64_t rows = 0;
  for (const size_t i : decision.run) {
    RC_ASSERT(q[i].group == q[decision.run[0]].group);
    rows += q[i].rows;
  }
  RC_ASSERT(rows <= b.max_rows || decision.run.size() == 1);
  if (decision.run.empty()) {
    for (const auto& w : q) RC_ASSERT(w.arrived + b.max_wait > now);
    RC_ASSERT(q.empty() || decision.look_again > now);
  } else {
    // The first of its group is in it: nobody is overtaken for ever.
    const auto group = q[decision.run[0]].group;
    for (size_t i = 0; i < decision.run[0]; ++i) RC_ASSERT(q[i].group != group);
  }
}

TEST(Batching, NobodyWaitsWhileOneByOneKeepsUp) {
  const Batching b{8, 10ms, 100};
  EXPECT_EQ(at_rate(b, 99).max_wait, Time(0));
  EXPECT_EQ(at_rate(b, 100).max_wait, Time(10ms));
  EXPECT_EQ(at_rate({8, 10ms}, 0).max_wait, Time(10ms));  // a wait set by hand always holds
}

TEST(ArrivalRate, FollowsTheArrivalsAndForgets) {
  ArrivalRate rate;
  Time now{0};
  for (int i = 0; i < 1000; ++i) rate = observe_arrival(rate, 2, now += 10ms);
  EXPECT_NEAR(rows_per_s(rate, now), 200, 2);
  EXPECT_LT(rows_per_s(rate, now + 5s), 2);
}

// Check values by the rule in batching.h.
TEST(BatchingChoice, KeepsBothConditionsOfThePaper) {
  // A machine on which batches pay: T_b = 20 + 5 b ms.
  std::vector<BatchTime> table;
  for (const int64_t b : {1, 2, 4, 8, 16, 32}) table.push_back({b, 0.020 + 0.005 * static_cast<double>(b)});
  for (const double slo : {0.06, 0.1, 0.2, 0.4, 1.0}) {
    const auto choice = choose_batching(table, {slo, 0.001, 32});
    const double t = 0.020 + 0.005 * static_cast<double>(choice.rows);
    EXPECT_LE(choice.wait_s + t + 0.001, slo) << slo;                                                  // (A)
    EXPECT_LE(choice.wait_s + t, static_cast<double>(choice.rows) * table[0].seconds + 1e-12) << slo;  // (B)
    EXPECT_GE(choice.wait_s, 0);
  }
  EXPECT_EQ(choose_batching(table, {0.06, 0.001, 32}).rows, 1);  // 2 T_2 = 60 ms
  EXPECT_EQ(choose_batching(table, {0.1, 0.001, 32}).rows, 4);   // 2 T_4 = 80 ms, 2 T_8 = 120 ms
  EXPECT_EQ(choose_batching(table, {1.0, 0.001, 32}).rows, 32);
  EXPECT_EQ(choose_batching(table, {1.0, 0.001, 8}).rows, 8);
}

TEST(BatchingChoice, DoesNotBatchWhereItDoesNotPay) {
  // Inception-v3 on c5.large: a batch of b takes more than b single runs (mark.md's Fig. 2).
  const std::vector<BatchTime> table{{1, 0.1}, {2, 0.21}, {4, 0.42}};
  const auto choice = choose_batching(table, {1, 0.001, 4});
  EXPECT_EQ(choice.rows, 1);
  EXPECT_EQ(choice.wait_s, 0);
  EXPECT_DOUBLE_EQ(choice.rows_per_s, 10);
}

TEST(BatchTimes, InterpolatesAndExtends) {
  const BatchTimes times{{{1, 0.010}, {4, 0.016}}, 1, 1};
  EXPECT_DOUBLE_EQ(times.mean(1), 0.010);
  EXPECT_DOUBLE_EQ(times.mean(2), 0.012);
  EXPECT_NEAR(times.mean(6), 0.020, 1e-12);
  EXPECT_DOUBLE_EQ((BatchTimes{{{2, 0.010}}, 1, 1}).mean(6), 0.030);
  EXPECT_EQ(BatchTimes{}.mean(3), 0);
}

TEST(BatchTimes, FollowTheMeanAndTheTail) {
  BatchTimes times{{{1, 0.010}}, 1, 1};
  for (int i = 0; i < 20000; ++i) times = observe(std::move(times), 1, i % 10 == 0 ? 0.030 : 0.020, 0.98);
  EXPECT_NEAR(times.mean(1), 0.021, 0.002);
  EXPECT_GE(times.tail(1), 0.026);
}

TEST(Admission, RefusesWhenTheQueueIsFull) {
  const AdmissionLimits limits{0, 0, 2};
  EXPECT_TRUE(admit({1, 1, {}}, 1, 0, {}, {}, limits).admitted);
  EXPECT_FALSE(admit({2, 2, {}}, 1, 0, {}, {}, limits).admitted);
}

TEST(Admission, CountsWhatRunsWhatWaitsAndTheOwnRun) {
  const BatchTimes times{{{1, 0.010}, {4, 0.010}}, 1, 1};  // a run takes 10 ms
  const Batching batching{4, 0ms};
  const std::vector<double> idle{0}, busy{0.005};
  const AdmissionLimits limits{0.1, 0, 1000};
  EXPECT_DOUBLE_EQ(admit({0, 0, idle}, 1, 0, times, batching, limits).estimate_s, 0.010);
  EXPECT_DOUBLE_EQ(admit({0, 0, busy}, 1, 0, times, batching, limits).estimate_s, 0.015);
  EXPECT_DOUBLE_EQ(admit({3, 3, busy}, 1, 0, times, batching, limits).estimate_s, 0.015);  // joins the batch
  EXPECT_DOUBLE_EQ(admit({4, 4, busy}, 1, 0, times, batching, limits).estimate_s, 0.025);  // comes after it
  const std::vector<double> two{0.005, 0.005};
  EXPECT_DOUBLE_EQ(admit({12, 12, two}, 1, 0, times, batching, limits).estimate_s, 0.025);
  EXPECT_FALSE(admit({40, 40, busy}, 1, 0, times, batching, limits).admitted);
  EXPECT_FALSE(admit({0, 0, busy}, 1, 0.09, times, batching, limits).admitted);  // too old already
}

TEST(Admission, AnIdleModelIsJudgedByItsTableAlone) {
  const BatchTimes slow{{{1, 0.010}}, 20, 20};  // by a time in which runs took 200 ms
  const std::vector<double> idle{0}, busy{0.001};
  const AdmissionLimits limits{0.1, 0, 1000};
  EXPECT_TRUE(admit({0, 0, idle}, 1, 0, slow, {1, 0ms}, limits).admitted);
  EXPECT_FALSE(admit({0, 0, busy}, 1, 0, slow, {1, 0ms}, limits).admitted);
  EXPECT_FALSE(admit({0, 0, idle}, 1, 0, {{{1, 1.0}}, 1, 1}, {1, 0ms}, limits).admitted);
}

TEST(Admission, CountsTheWaitForABatchThatIsNotFull) {
  const BatchTimes times{{{1, 0.010}, {4, 0.010}}, 1, 1};
  const std::vector<double> idle{0};
  EXPECT_NEAR(admit({0, 0, idle}, 1, 0, times, {4, 20ms}, {0.1, 0, 1000}).estimate_s, 0.030, 1e-9);
  EXPECT_NEAR(admit({3, 3, idle}, 1, 0, times, {4, 20ms}, {0.1, 0, 1000}).estimate_s, 0.010, 1e-9);
}

}  // namespace
}  // namespace trireme::serve
