#include "trireme/train/checkpoint_torch.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <functional>

#include "trireme/base/error.h"
#include "trireme/base/files.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() {
    std::string pattern = (fs::temp_directory_path() / "trireme-checkpoint-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~CheckpointTest() override { fs::remove_all(folder_); }

  fs::path save(int64_t step, int64_t keep_last = 0) {
    return save_checkpoint(folder_, at_step(step), keep_last);
  }
  static Checkpoint at_step(int64_t step) {
    Checkpoint c{
        .step = step, .samples = step * 16, .seed = 1ULL << 63, .graph_fingerprint = ~0ULL, .world_size = 3};
    c.model["weight"] = at::arange(12, at::kFloat).view({3, 4}).t();
    c.model["count"] = at::ones({}, at::kLong);
    c.model["none"] = at::empty({0, 5}, at::kBFloat16);
    c.optimizer["weight.exp_avg"] = at::ones({4, 3}, at::kDouble).mul(step);
    c.tied["head"] = "weight";
    c.extra["note"] = R"({"a":[1,2]})";
    return c;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(folder_)) all.push_back(entry.path().filename().string());
    std::sort(all.begin(), all.end());
    return all;
  }
  fs::path folder_;
};

std::string message_of(const std::function<void()>& body, ErrorCode code) {
  try {
    body();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  return "no error";
}

TEST_F(CheckpointTest, ReadsBackWhatWasWritten) {
  const Checkpoint want = at_step(7), got = load_checkpoint(save(7));
  EXPECT_EQ(got.step, 7);
  EXPECT_EQ(got.samples, 112);
  EXPECT_EQ(got.seed, 1ULL << 63);
  EXPECT_EQ(got.graph_fingerprint, ~0ULL);
  EXPECT_EQ(got.world_size, 3);
  EXPECT_EQ(got.tied, want.tied);
  EXPECT_EQ(got.extra, want.extra);
  ASSERT_EQ(got.model.size(), 3U);
  for (const auto& [name, tensor] : want.model) {
    EXPECT_TRUE(at::equal(got.model.at(name), tensor)) << name;
    EXPECT_EQ(got.model.at(name).scalar_type(), tensor.scalar_type()) << name;
  }
  EXPECT_TRUE(at::equal(got.optimizer.at("weight.exp_avg"), want.optimizer.at("weight.exp_avg")));
}

TEST_F(CheckpointTest, KeepsTheLastOnesByNumber) {
  for (int64_t step : {8, 9, 10, 11}) save(step, 2);
  EXPECT_THAT(names(), ElementsAre("step_10", "step_11"));
}

TEST_F(CheckpointTest, LaterStepsOfAReplacedAttemptGoOnceTheNewOneIsSafe) {
  save(10);
  save(100);
  save(20);
  EXPECT_THAT(names(), ElementsAre("step_10", "step_20"));
}

TEST_F(CheckpointTest, SameStepIsReplaced) {
  save(5);
  Checkpoint again = at_step(5);
  again.samples = 1;
  save_checkpoint(folder_, again, 3);
  EXPECT_THAT(names(), ElementsAre("step_5"));
  EXPECT_EQ(load_checkpoint(folder_ / "step_5").samples, 1);
}

TEST_F(CheckpointTest, FindsTheNewestCompleteOne) {
  const fs::path run = folder_ / "run";
  save_checkpoint(run / "checkpoints", at_step(9), 0);
  save_checkpoint(run / "checkpoints", at_step(10), 0);
  fs::create_directories(run / "checkpoints" / ".tmp-step_12");
  fs::create_directories(run / "checkpoints" / "step_11");  // no index: a copy that was cut off
  EXPECT_EQ(find_checkpoint(run), run / "checkpoints" / "step_10");
  EXPECT_EQ(find_checkpoint(run / "checkpoints"), run / "checkpoints" / "step_10");
  EXPECT_EQ(find_checkpoint(run / "checkpoints" / "step_9"), run / "checkpoints" / "step_9");
}

TEST_F(CheckpointTest, SaysWhatIsMissing) {
  EXPECT_THAT(message_of([&] { find_checkpoint(folder_ / "absent"); }, ErrorCode::input),
              HasSubstr("absent"));
  EXPECT_THAT(message_of([&] { find_checkpoint(folder_); }, ErrorCode::input),
              HasSubstr("no complete checkpoint"));
  fs::create_directory(folder_ / "step_3");
  EXPECT_THAT(message_of([&] { find_checkpoint(folder_ / "step_3"); }, ErrorCode::input),
              HasSubstr("index.json"));
}

TEST_F(CheckpointTest, RemovesWhatACrashLeft) {
  save(1);
  fs::create_directories(folder_ / ".tmp-step_2");
  std::ofstream(folder_ / ".tmp-step_2" / "model.safetensors") << "half";
  remove_unfinished(folder_);
  EXPECT_THAT(names(), ElementsAre("step_1"));
  fs::rename(folder_ / "step_1", folder_ / ".old-step_1");  // died while replacing it
  remove_unfinished(folder_);
  EXPECT_THAT(names(), ElementsAre("step_1"));
}

TEST_F(CheckpointTest, RefusesWhatDoesNotMatchTheIndex) {
  const fs::path step = save(4);
  const auto size = fs::file_size(step / "model.safetensors");
  fs::resize_file(step / "model.safetensors", size - 1);
  EXPECT_THAT(message_of([&] { load_checkpoint(step); }, ErrorCode::input),
              AllOf(HasSubstr("model.safetensors"), HasSubstr("truncated")));
  fs::remove(step / "model.safetensors");
  EXPECT_THAT(message_of([&] { load_checkpoint(step); }, ErrorCode::input), HasSubstr("missing"));
  std::ofstream(step / "index.json") << R"({"version": 99})";
  EXPECT_THAT(message_of([&] { load_checkpoint(step); }, ErrorCode::unsupported), HasSubstr("version 99"));
  std::ofstream(step / "index.json") << R"({"version": 1})";
  EXPECT_THAT(message_of([&] { load_checkpoint(step); }, ErrorCode::input),
              AllOf(HasSubstr("index.json"), HasSubstr("step")));
  for (const std::string& broken : {std::string("{"), std::string(1'000'000, '[')}) {
    std::ofstream(step / "index.json") << broken;
    EXPECT_THAT(message_of([&] { load_checkpoint(step); }, ErrorCode::input), HasSubstr("index.json"));
  }
}

// A limit on file size fails a write halfway, as a full disk does.
TEST_F(CheckpointTest, FailureWhileWritingKeepsThePreviousOne) {
  save(1);
  Checkpoint large = at_step(2);
  large.model["weight"] = at::ones({100'000}, at::kFloat);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{100'000, before.rlim_max};
  std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = message_of([&] { save_checkpoint(folder_, large, 1); }, ErrorCode::io);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(message, AllOf(HasSubstr("step_2"), HasSubstr("File too large")));
  EXPECT_THAT(names(), ElementsAre("step_1"));
  EXPECT_EQ(load_checkpoint(find_checkpoint(folder_)).step, 1);
}

TEST_F(CheckpointTest, FolderThatCannotBeMadeIsNamed) {
  std::ofstream(folder_ / "file") << "x";
  EXPECT_THAT(
      message_of([&] { save_checkpoint(folder_ / "file" / "checkpoints", at_step(1), 1); }, ErrorCode::io),
      HasSubstr("file/checkpoints/step_1"));
}

}  // namespace
}  // namespace trireme::train
