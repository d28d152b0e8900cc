#include "trireme/deploy/training_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/files.h"
#include "trireme/deploy/fake_process.h"

namespace trireme::deploy {
namespace {

namespace fs = std::filesystem;

// A training that writes one row of metrics at every look, and a checkpoint when it is stopped.
class FakeTraining : public Process {
 public:
  FakeTraining(fs::path folder, int64_t first, FakeClock& clock, double step_s)
      : folder_(std::move(folder)), step_(first), clock_(clock), step_s_(step_s) {
    fs::create_directories(folder_);
  }
  Event next_line(std::string&, Deadline deadline) override {
    clock_.advance(deadline.at - clock_.now());
    ++step_;
    rows_ += "{\"step\":" + std::to_string(step_) + ",\"step_s\":" + std::to_string(step_s_) + "}\n";
    write_file(folder_ / "metrics.jsonl", rows_);
    return Event::timeout;
  }
  void stop(double) override {
    const auto checkpoint = folder_ / "checkpoints" / ("step_" + std::to_string(step_));
    fs::create_directories(checkpoint);
    write_file(checkpoint / "index.json", "{}");
  }
  bool finish(Deadline) override { return true; }
  int exit_code() override { return 1; }
  std::string last_error() override { return ""; }

 private:
  fs::path folder_;
  int64_t step_;
  FakeClock& clock_;
  double step_s_;
  std::string rows_;
};

class FakeTrainer : public Processes {
 public:
  explicit FakeTrainer(FakeClock& clock) : clock_(clock) {}
  std::unique_ptr<Process> start(const std::vector<std::string>& words) override {
    std::string all;
    fs::path out;
    int64_t first = 0;
    for (size_t i = 0; i < words.size(); ++i) {
      all += " " + words[i];
      if (words[i] == "--out") out = words[i + 1];
      if (words[i] == "--resume") first = std::stoll(fs::path(words[i + 1]).filename().string().substr(5));
    }
    started.push_back(all);
    if (fails)
      return std::make_unique<FakeProcess>(
          Script{.ends_after = 1, .exit_code = 2, .last_error = "no such\nfile"}, clock_);
    return std::make_unique<FakeTraining>(out, first, clock_, 0.5);
  }
  void cancel() override {}
  std::vector<std::string> started;
  bool fails = false;

 private:
  FakeClock& clock_;
};

class TrainingProbe : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(runs); }
  Measurement measure(int64_t nodes) {
    TrainingProfiler profiler({.program = "trireme",
                               .config = "c.toml",
                               .runs = runs,
                               .sets = {"transport.rate_limit={instance}"},
                               .global_batch = 32,
                               .samples = 1000},
                              {}, trainer, clock);
    return profiler.measure({.deployment = {"100mbit", nodes}, .planned_hours = 2.0 / 3600});
  }
  const fs::path runs = fs::path(testing::TempDir()) / "training_probe";
  FakeClock clock;
  FakeTrainer trainer{clock};
};

TEST_F(TrainingProbe, TrainsRealStepsAtTheFixedGlobalBatchAndGoesOnFromThem) {
  const auto first = measure(1), second = measure(4);
  EXPECT_NEAR(first.samples_per_s, 64, 1e-9);
  EXPECT_GT(first.samples_trained, 0);
  EXPECT_EQ(first.samples_trained % 32, 0);
  EXPECT_GT(second.samples_trained, 0);
  EXPECT_THAT(trainer.started[0], testing::HasSubstr("train c.toml --nproc 1 --out"));
  EXPECT_THAT(trainer.started[0], testing::HasSubstr("train.steps=32 --set train.batch_per_rank=32"));
  EXPECT_THAT(trainer.started[0], testing::HasSubstr("--set transport.rate_limit=100mbit"));
  EXPECT_THAT(trainer.started[0], testing::Not(testing::HasSubstr("--resume")));
  EXPECT_THAT(trainer.started[1], testing::HasSubstr("--nproc 4"));
  EXPECT_THAT(trainer.started[1], testing::HasSubstr("train.batch_per_rank=8"));
  EXPECT_THAT(trainer.started[1], testing::HasSubstr("step_" + std::to_string(first.samples_trained / 32)));
  EXPECT_EQ(newest_checkpoint(runs)->step, (first.samples_trained + second.samples_trained) / 32);
}

TEST_F(TrainingProbe, AFailedTrainingIsAFailedProbe) {
  trainer.fails = true;
  const auto m = measure(2);
  EXPECT_EQ(m.error, "trained no step; exit code 2: no such file");
  EXPECT_EQ(m.samples_trained, 0);
  EXPECT_GT(m.hours, 0);
}

}  // namespace
}  // namespace trireme::deploy
