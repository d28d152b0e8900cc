#include <numeric>

#include "trireme/serve/measure.h"
#include "trireme/serve/runner_fixture_for_tests.h"

namespace trireme::serve {
namespace {

using ::testing::HasSubstr;

TEST_F(Runner, AnswersEachWithItsOwnRows) {
  make(greedy(8));
  auto first = block();
  auto a = send({1, 2, 3, 4}, 2), b = send({5, 6}), c = send({7, 8});
  state_->gate.open();
  EXPECT_EQ(a.values(), (std::vector<float>{2, 4, 6, 8}));
  EXPECT_EQ(b.values(), (std::vector<float>{10, 12}));
  EXPECT_EQ(c.values(), (std::vector<float>{14, 16}));
  EXPECT_EQ(state_->batches, (std::vector<int64_t>{1, 4}));
  first.get();
}

TEST_F(Runner, ShapesThatDifferRunApart) {
  make(greedy(8));
  auto first = block();
  auto a = send({1, 2}), b = send({3}), c = send({4, 5});
  state_->gate.open();
  EXPECT_EQ(a.values(), (std::vector<float>{2, 4}));
  EXPECT_EQ(b.values(), (std::vector<float>{6}));
  EXPECT_EQ(c.values(), (std::vector<float>{8, 10}));
  EXPECT_EQ(state_->batches, (std::vector<int64_t>{1, 2, 1}));
  first.get();
}

TEST_F(Runner, ABadRequestDoesNotFailThoseItWasJoinedWith) {
  make(greedy(8));
  auto first = block();
  auto good = send({1}), bad = send({13}), broken = send({-13}), also_good = send({2});
  state_->gate.open();
  EXPECT_EQ(good.values(), (std::vector<float>{2}));
  EXPECT_EQ(also_good.values(), (std::vector<float>{4}));
  EXPECT_EQ(bad.reason(), Reason::invalid);
  EXPECT_EQ(broken.reason(), Reason::failed);
  first.get();
}

TEST_F(Runner, AFullQueueRefusesAtOnceAndLeavesTheRequestWhole) {
  RunnerOptions options = greedy(1);
  options.limits.max_waiting = 1;
  make(options);
  auto first = block();
  auto waits = send({1});
  auto refused = send({2});
  EXPECT_THAT(std::get<Rejection>(refused.outcome).message, HasSubstr("queue is full"));
  state_->gate.open();
  EXPECT_EQ(waits.values(), (std::vector<float>{2}));
  first.get();
}

TEST_F(Runner, ALateRequestLearnsItWhileTheInstanceIsStillBusy) {
  make(greedy(1));
  auto first = block();
  auto late = send({1}, 1, 1000);
  EXPECT_EQ(late.reason(), Reason::expired);  // the gate is still closed
  state_->gate.open();
  first.get();
  EXPECT_EQ(metrics_->rejected, 1u);
}

TEST_F(Runner, CancelledRequestsThatWaitNeverRun) {
  make(greedy(1));
  auto first = block();
  auto gone = send({1}), stays = send({2});
  runner_->cancel(gone.ticket());
  EXPECT_EQ(gone.reason(), Reason::cancelled);
  state_->gate.open();
  EXPECT_EQ(stays.values(), (std::vector<float>{4}));
  runner_->cancel(stays.ticket());  // too late: nothing happens
  EXPECT_EQ(state_->batches, (std::vector<int64_t>{1, 1}));
  first.get();
}

TEST_F(Runner, PriorityOneGoesFirst) {
  make(greedy(1));
  auto first = block();
  auto normal = send({1, 1}, 2), low = send({2, 2, 2}, 3, {}, 9), high = send({3, 3, 3, 3}, 4, {}, 1);
  state_->gate.open();
  normal.get(), low.get(), high.get(), first.get();
  EXPECT_EQ(state_->batches, (std::vector<int64_t>{1, 4, 3, 2}));  // told apart by their rows
}

TEST_F(Runner, StopServesWhatWaitsAndThenRefuses) {
  RunnerOptions options = greedy(4);
  options.batching.max_wait = 1h;
  make(options);
  auto waits = send({1});
  runner_->stop();
  EXPECT_EQ(waits.values(), (std::vector<float>{2}));
  EXPECT_EQ(std::get<Rejection>(send({2}).outcome).reason, Reason::unavailable);
}

TEST_F(Runner, SeveralInstancesRunSideBySide) {
  make(greedy(1), 2);
  state_->gate.close();
  auto a = send({1}), b = send({2});
  state_->gate.wait_inside(2);
  state_->gate.open();
  EXPECT_EQ(a.values(), (std::vector<float>{2}));
  EXPECT_EQ(b.values(), (std::vector<float>{4}));
}

TEST_F(Runner, CancellingWhileRunsFinishAnswersEachOnce) {
  RunnerOptions options = greedy(4);
  options.limits.max_waiting = 2000;
  make(options, 2);
  std::vector<Sent> all;
  for (int i = 0; i < 2000; ++i) {
    all.push_back(send({static_cast<float>(i % 7)}));
    if (i % 3 == 0) runner_->cancel(all.back().ticket());
  }
  for (auto& sent : all) sent.get();  // a promise that is set twice throws in the runner's thread
  EXPECT_EQ(metrics_->success + metrics_->cancelled, 2000u);
  EXPECT_EQ(metrics_->pending, 0);
}

TEST_F(Runner, CountsRowsAndRuns) {
  make(greedy(8));
  auto first = block();
  auto a = send({1, 2}, 2), b = send({3});
  state_->gate.open();
  a.get(), b.get(), first.get();
  runner_->stop();
  EXPECT_EQ(metrics_->rows, 4u);
  EXPECT_EQ(metrics_->runs, 2u);
  EXPECT_EQ(metrics_->request_s.snapshot().total(), 3u);
}

TEST(Measure, RowsOfTheFakeAreIndependent) {
  FakeBackend backend(std::make_shared<FakeState>());
  EXPECT_TRUE(rows_are_independent(backend));
}

// Subtracts the mean over the batch.
class Mixing : public FakeBackend {
 public:
  using FakeBackend::FakeBackend;
  std::vector<Tensor> run(const std::vector<RunInput>& inputs) override {
    auto outputs = FakeBackend::run(inputs);
    auto values = std::make_shared<std::vector<float>>(outputs[0].bytes.size() / sizeof(float));
    std::memcpy(values->data(), outputs[0].bytes.data(), outputs[0].bytes.size());
    const float mean =
        std::accumulate(values->begin(), values->end(), 0.0f) / static_cast<float>(values->size());
    for (float& v : *values) v -= mean;
    outputs[0].bytes = std::as_bytes(std::span(*values));
    outputs[0].owner = values;
    return outputs;
  }
};

TEST(Measure, FindsModelsThatMixRows) {
  Mixing backend(std::make_shared<FakeState>());
  EXPECT_FALSE(rows_are_independent(backend));
}

TEST(Measure, TimesRisingBatchSizesToTheLimit) {
  const auto state = std::make_shared<FakeState>();
  FakeBackend backend(state);
  const auto table = measure_times(backend, 6, 10, 60);
  ASSERT_EQ(table.size(), 4u);
  EXPECT_EQ(table[0].rows, 1);
  EXPECT_EQ(table[3].rows, 6);
  for (const auto& entry : table) EXPECT_GT(entry.seconds, 0);
}

}  // namespace
}  // namespace trireme::serve
