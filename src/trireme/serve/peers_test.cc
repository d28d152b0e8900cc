// What users of other servers report, as tests of this one; each is named after the report. Those that need
// the network are in tests/multi/test_serve_peers.py.
#include <numeric>

#include "trireme/serve/runner_fixture_for_tests.h"

namespace trireme::serve {
namespace {

using Peers = Runner;

TEST_F(Peers, TritonServer3624_QueuedRequestsRunTogether) {
  make(greedy(16));
  auto first = block();
  std::vector<Sent> queued;
  for (int i = 0; i < 16; ++i) queued.push_back(send({1}));
  state_->gate.open();
  for (auto& sent : queued) sent.get();
  EXPECT_EQ(state_->batches, (std::vector<int64_t>{1, 16}));
  first.get();
}

TEST_F(Peers, TritonServer8141_BatchesNeverExceedTheLimit) {
  make(greedy(8), 2);
  std::vector<Sent> all;
  for (int i = 0; i < 1000; ++i) all.push_back(send(std::vector<float>(1 + i % 3, 1), 1 + i % 3));
  for (auto& sent : all) sent.get();
  for (const int64_t rows : state_->batches) EXPECT_LE(rows, 8);
}

TEST_F(Peers, TritonServer7271_ALongWaitFillsBatches) {
  RunnerOptions options = greedy(20);
  options.batching.max_wait = 10min;
  make(options);
  std::vector<Sent> all;
  for (int i = 0; i < 80; ++i) all.push_back(send({1}));
  for (auto& sent : all) sent.get();
  EXPECT_EQ(state_->batches, (std::vector<int64_t>{20, 20, 20, 20}));
}

TEST_F(Peers, TritonServer3776_InputsOfDifferentLengthsAreNotJoined) {
  RunnerOptions options = greedy(2);
  options.batching.max_wait = 10min;
  make(options);
  auto a = send({1}), b = send({1, 2}), c = send({3}), d = send({3, 4});
  EXPECT_EQ(a.values(), (std::vector<float>{2}));
  EXPECT_EQ(b.values(), (std::vector<float>{2, 4}));
  EXPECT_EQ(c.values(), (std::vector<float>{6}));
  EXPECT_EQ(d.values(), (std::vector<float>{6, 8}));
}

TEST_F(Peers, BentoML3859_RowsAreCountedNotRequests) {
  make(greedy(8));
  auto first = block();
  auto a = send(std::vector<float>(6, 1), 6), b = send(std::vector<float>(6, 1), 6);
  state_->gate.open();
  a.get(), b.get(), first.get();
  EXPECT_EQ(state_->batches, (std::vector<int64_t>{1, 6, 6}));
}

TEST_F(Peers, BentoML3646_UnderTooMuchLoadWorkIsDone) {
  RunnerOptions options = greedy(4);
  options.limits.max_waiting = 16;
  make(options);
  size_t taken = 0;
  std::vector<Sent> all;
  while (taken < 500) {
    all.push_back(send({1}));
    taken += all.back().outcome.index() == 0 ? 1 : 0;
    if (all.back().outcome.index() != 0) all.pop_back();
  }
  for (auto& sent : all) EXPECT_EQ(sent.values(), (std::vector<float>{2}));
  EXPECT_EQ(metrics_->success, 500u);
}

TEST_F(Peers, KServe1666_WithoutAWaitASingleRequestGoesAtOnce) {
  make(greedy(32));
  EXPECT_EQ(send({1}).values(), (std::vector<float>{2}));
}

TEST_F(Peers, TritonServer7512_DeadlinesFireWhileTheInstanceIsBusy) {
  make(greedy(1));
  auto first = block();
  EXPECT_EQ(send({1}, 1, 1000).reason(), Reason::expired);
  state_->gate.open();
  first.get();
}

TEST_F(Peers, TritonServer5783_TheQueueLimitHoldsForCloselySpacedRequests) {
  RunnerOptions options = greedy(1);
  options.limits.max_waiting = 4;
  make(options);
  auto first = block();
  std::vector<Sent> taken;
  for (int i = 0; i < 100; ++i) {
    auto sent = send({1});
    if (sent.outcome.index() == 0) taken.push_back(std::move(sent));
  }
  EXPECT_EQ(taken.size(), 4u);
  state_->gate.open();
  for (auto& sent : taken) sent.get();
  first.get();
}

TEST_F(Peers, TritonServer5348_NothingExpiresBeforeItsTime) {
  make(greedy(1));
  auto first = block();
  std::vector<Sent> patient;
  for (int i = 0; i < 8; ++i) patient.push_back(send({1}, 1, 600'000'000));
  EXPECT_EQ(send({1}, 1, 1000).reason(), Reason::expired);
  state_->gate.open();
  for (auto& sent : patient) EXPECT_EQ(sent.values(), (std::vector<float>{2}));
  first.get();
}

TEST_F(Peers, TritonServer980_TheQueueIsBoundedByDefault) {
  make(RunnerOptions());
  auto first = block();
  std::vector<Sent> taken;
  bool refused = false;
  while (!refused && taken.size() < 100000) {
    auto sent = send({1});
    refused = sent.outcome.index() != 0;
    if (!refused) taken.push_back(std::move(sent));
  }
  EXPECT_TRUE(refused);
  state_->gate.open();
  for (auto& sent : taken) sent.get();
  first.get();
}

TEST_F(Peers, Ray18925_WhatWaitsIsServedWhenAReplicaGoes) {
  make(greedy(2));
  auto first = block();
  std::vector<Sent> waiting;
  for (int i = 0; i < 10; ++i) waiting.push_back(send({1}));
  std::thread stopper([&] { runner_->stop(); });
  state_->gate.open();
  stopper.join();
  for (auto& sent : waiting) EXPECT_EQ(sent.values(), (std::vector<float>{2}));
  first.get();
}

TEST_F(Peers, BentoML3200_WithoutAnSloTheTimeOfARunRefusesNobody) {
  RunnerOptions options = greedy(1);
  options.times.table = {{1, 3600}};  // an hour each, by the profile
  make(options);
  auto first = block();
  auto second = send({1});
  EXPECT_EQ(second.outcome.index(), 0u);
  state_->gate.open();
  second.get(), first.get();
}

TEST_F(Peers, BentoML1530_TheLatencyGoalIsHonoured) {
  RunnerOptions options = greedy(1);
  options.times.table = {{1, 0.05}};
  options.limits.slo_s = 0.12;
  make(options);
  auto first = block();
  std::vector<Sent> all;
  for (int i = 0; i < 10; ++i) all.push_back(send({1}));
  const auto taken = std::ranges::count_if(all, [](const Sent& s) { return s.outcome.index() == 0; });
  EXPECT_GE(taken, 1);
  EXPECT_LE(taken, 2);  // with the one that runs, 0.15 s
  state_->gate.open();
  for (auto& sent : all)
    if (sent.outcome.index() == 0) sent.get();
  first.get();
}

TEST_F(Peers, TritonServer8078_CancellationAndCompletionMayMeet) {
  make(greedy(2), 2);
  for (int round = 0; round < 500; ++round) {
    auto sent = send({1});
    std::thread canceller([&] { runner_->cancel(sent.ticket()); });
    sent.get();
    canceller.join();
  }
  EXPECT_EQ(metrics_->success + metrics_->cancelled, 500u);
}

}  // namespace
}  // namespace trireme::serve
