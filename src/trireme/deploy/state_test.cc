#include "trireme/deploy/state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"

namespace trireme::deploy {
namespace {

namespace fs = std::filesystem;

class State : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path path() const { return folder_ / "job.state"; }
  static std::string refusal(const fs::path& path, const std::string& job) {
    try {
      StateFile state(path, job);
    } catch (const Error& error) {
      EXPECT_EQ(exit_code(error.code()), 2);
      return error.what();
    }
    return "";
  }
  const Probe probe_{.deployment = {"a", 2},
                     .samples_per_s = 1.0 / 3,
                     .relative_sd = 0.01,
                     .hours = 0.2,
                     .usd = 0.4,
                     .round = 3,
                     .samples_trained = 7,
                     .ended_early = true};
  const Probe failed_{
      .deployment = {"b", 1}, .hours = 0.1, .usd = 0.1, .round = 4, .error = "out of \"memory\""};

 private:
  fs::path folder_;
};

TEST_F(State, RemembersProbesExactly) {
  {
    StateFile state(path(), "job");
    state.begin({&probe_, 1});
    state.end({&probe_, 1});
    state.end({&failed_, 1});
    state.set_launches({{{"a", 2}, 10, 0.5, 1.5, "finished"}});
  }
  const StateFile state(path(), "job");
  EXPECT_THAT(state.probes(), testing::ElementsAre(probe_, failed_));
  EXPECT_THAT(state.launches(), testing::ElementsAre(Launch{{"a", 2}, 10, 0.5, 1.5, "finished"}));
}

TEST_F(State, AProbeThatWasCutOffIsChargedAsPlanned) {
  {
    StateFile state(path(), "job");
    state.begin({&failed_, 1});
  }
  for (int time = 0; time < 2; ++time) {  // once, not at every opening
    const StateFile state(path(), "job");
    ASSERT_EQ(state.probes().size(), 1U);
    EXPECT_TRUE(state.probes()[0].interrupted);
    EXPECT_EQ(state.probes()[0].usd, failed_.usd);
    EXPECT_THAT(state.probes()[0].error, testing::HasSubstr("cut off"));
  }
}

TEST_F(State, RefusesAnotherJobAnotherProcessAndBrokenFiles) {
  {
    StateFile state(path(), "job");
    state.end({&probe_, 1});
    EXPECT_THAT(refusal(path(), "job"), testing::HasSubstr("another search works on this state"));
  }
  EXPECT_THAT(refusal(path(), "other"), testing::HasSubstr("belongs to another job"));
  const auto whole = read_file(path());
  for (const size_t length : {0UL, 1UL, whole.size() / 2, whole.size() - 3}) {
    write_file(path(), whole.substr(0, length));
    EXPECT_THAT(refusal(path(), "job"), testing::HasSubstr("broken")) << length;
  }
  write_file(path(), R"({"kind":"search_state","version":99})");
  EXPECT_THAT(refusal(path(), "job"), testing::HasSubstr("version 99"));
  write_file(path(), R"({"kind":"graph","version":1})");
  EXPECT_THAT(refusal(path(), "job"), testing::HasSubstr("not a search's state"));
}

}  // namespace
}  // namespace trireme::deploy
