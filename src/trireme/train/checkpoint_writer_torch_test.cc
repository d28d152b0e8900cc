#include "trireme/train/checkpoint_writer_torch.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "trireme/base/error.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

class CheckpointWriterTest : public testing::Test {
 protected:
  CheckpointWriterTest() {
    std::string pattern = (fs::temp_directory_path() / "trireme-writer-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~CheckpointWriterTest() override { fs::remove_all(folder_); }

  static Checkpoint at_step(int64_t step, int64_t elements = 1000) {
    Checkpoint c{.step = step};
    c.model["weight"] = at::full({elements}, static_cast<double>(step));
    c.optimizer["weight.step"] = at::ones({}, at::kFloat).mul(step);
    return c;
  }
  double weight(int64_t step) const {
    return load_checkpoint(checkpoint_folder(folder_, step)).model.at("weight").mean().item().toDouble();
  }
  fs::path folder_;
};

TEST_F(CheckpointWriterTest, SavesWhatTheTensorsHeldAtTheStart) {
  CheckpointWriter writer(folder_, 10);
  Checkpoint c = at_step(1);
  for (int64_t step = 1; step <= 5; ++step) {
    c.step = step;
    writer.start(c);
    c.model["weight"].add_(1);
  }
  writer.finish();
  EXPECT_THAT(checkpoint_steps(folder_), testing::ElementsAre(1, 2, 3, 4, 5));
  for (int64_t step = 1; step <= 5; ++step) EXPECT_EQ(weight(step), static_cast<double>(step));
}

TEST_F(CheckpointWriterTest, TakesTensorsThatComeGoAndChangeShape) {
  CheckpointWriter writer(folder_, 10);
  writer.start(at_step(1));
  Checkpoint other = at_step(2, 7);
  other.model["more"] = at::ones({2, 3}).t();
  other.optimizer.clear();
  writer.start(other);
  writer.finish();
  const Checkpoint got = load_checkpoint(checkpoint_folder(folder_, 2));
  EXPECT_EQ(got.model.at("weight").numel(), 7);
  EXPECT_EQ(got.model.at("more").sizes(), (at::IntArrayRef{3, 2}));
  EXPECT_TRUE(got.optimizer.empty());
}

TEST_F(CheckpointWriterTest, ItsEndWaitsForAWrite) {
  {
    CheckpointWriter writer(folder_, 10);
    writer.start(at_step(1, 1'000'000));
  }
  EXPECT_EQ(weight(1), 1);
}

TEST_F(CheckpointWriterTest, AFullDiskIsToldOnceAndTheCheckpointBeforeStands) {
  CheckpointWriter writer(folder_, 1);
  writer.start(at_step(1));
  writer.finish();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{100'000, before.rlim_max};
  std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  writer.start(at_step(2, 100'000));
  EXPECT_THROW(writer.finish(), Error);
  writer.check();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(checkpoint_steps(folder_), testing::ElementsAre(1));
  writer.start(at_step(3));
  writer.finish();
  EXPECT_THAT(checkpoint_steps(folder_), testing::ElementsAre(3));
}

}  // namespace
}  // namespace trireme::train
