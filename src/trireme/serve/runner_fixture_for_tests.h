#pragma once
// A ModelRunner over fake instances that can be held back, and requests with their answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "trireme/serve/fake_backend_for_tests.h"
#include "trireme/serve/request_check.h"
#include "trireme/serve/runner.h"

namespace trireme::serve {

using namespace std::chrono_literals;

// A request, and the future of its answer.
struct Sent {
  std::variant<ModelRunner::Ticket, Rejection> outcome;
  std::future<InferResult> result;
  ModelRunner::Ticket ticket() const { return std::get<ModelRunner::Ticket>(outcome); }
  InferResult get() {
    EXPECT_EQ(result.wait_for(30s), std::future_status::ready);
    return result.get();
  }
  std::vector<float> values() {
    const auto answer = get();
    if (const auto* no = std::get_if<Rejection>(&answer)) throw std::runtime_error(no->message);
    const auto bytes = std::get<InferResponse>(answer).outputs.at(0).bytes;
    std::vector<float> v(bytes.size() / sizeof(float));
    std::memcpy(v.data(), bytes.data(), bytes.size());
    return v;
  }
  Reason reason() { return std::get<Rejection>(get()).reason; }
};

class Runner : public ::testing::Test {
 protected:
  void make(RunnerOptions options, int instances = 1) {
    Instances backends;
    for (int i = 0; i < instances; ++i) backends.push_back(std::make_unique<FakeBackend>(state_));
    ModelInfo info = backends[0]->info();
    runner_ = std::make_unique<ModelRunner>(std::move(info), std::move(backends), options, metrics_);
  }

  Sent send(std::vector<float> values, int64_t rows = 1, std::optional<int64_t> timeout_us = {},
            int64_t priority = 0) {
    auto memory = std::make_shared<std::vector<float>>(std::move(values));
    InferRequest request;
    const auto width = static_cast<int64_t>(memory->size()) / rows;
    request.inputs = {{"x", spec::Dtype::f32, {rows, width}, std::as_bytes(std::span(*memory)), memory}};
    request.timeout_us = timeout_us;
    request.priority = priority;
    auto promise = std::make_shared<std::promise<InferResult>>();
    Sent sent;
    sent.result = promise->get_future();
    Done done = [promise](InferResult r) { promise->set_value(std::move(r)); };
    const int64_t counted = check_request(runner_->info(), request);
    sent.outcome = runner_->submit(request, counted, steady_clock().now(), done);
    return sent;
  }

  // Occupies the only instance until the gate opens.
  Sent block() {
    state_->gate.close();
    Sent sent = send({0});
    state_->gate.wait_inside(1);
    return sent;
  }

  std::shared_ptr<FakeState> state_ = std::make_shared<FakeState>();
  std::shared_ptr<ModelMetrics> metrics_ = std::make_shared<ModelMetrics>();
  std::unique_ptr<ModelRunner> runner_;
};

inline RunnerOptions greedy(int64_t rows) {
  RunnerOptions o;
  o.batching.max_rows = rows;
  return o;
}

}  // namespace trireme::serve
