#include "trireme/deploy/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"

namespace trireme::deploy {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOffers = "instance,usd_per_hour,max_nodes\na,1,4\nb,2,8\n";
constexpr const char* kSpeeds = "instance,nodes,samples_per_s\na,1,10\na,2,18\nb,1,30\n";
constexpr const char* kJob = R"([job]
samples = 1e6
[goal]
scenario = "budget"
budget_usd = 100
[space]
offers = "offers.csv"
[probe]
kind = "replay"
table = "speeds.csv"
)";

class JobFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    write_file(folder_ / "offers.csv", kOffers);
    write_file(folder_ / "speeds.csv", kSpeeds);
  }
  void TearDown() override { fs::remove_all(folder_); }
  Job read(const std::vector<std::string>& sets = {}) const {
    return job_from(kJob, "job.toml", folder_, sets);
  }
  std::string refusal(const std::vector<std::string>& sets) const {
    try {
      read(sets);
    } catch (const Error& error) {
      EXPECT_EQ(exit_code(error.code()), 2);
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      return error.what();
    }
    return "";
  }
  void write(const char* name, const std::string& text) const { write_file(folder_ / name, text); }
  fs::path folder_;
};

TEST_F(JobFile, TheTableSaysWhichDeploymentsExist) {
  const auto job = read();
  ASSERT_EQ(job.space.candidates.size(), 3U);
  EXPECT_EQ(job.space.candidates[1].deployment, (Deployment{"a", 2}));
  EXPECT_EQ(read({"space.nodes=[2]"}).space.candidates.size(), 1U);
  EXPECT_EQ(read({"space.instances=['b']"}).space.candidates.size(), 1U);
  EXPECT_EQ(*job.goal.budget_usd, 100);
  EXPECT_EQ(job.goal.margin, 0.05);
}

TEST_F(JobFile, AListSaysWhichDeploymentsExist) {
  write("some.csv", "instance,nodes\nb,1\nb,4\n");
  const auto job = read({"probe.kind=command", "probe.command='echo 1'", "space.deployments=some.csv"});
  ASSERT_EQ(job.space.candidates.size(), 2U);
  EXPECT_EQ(job.space.candidates[1].deployment, (Deployment{"b", 4}));
}

TEST_F(JobFile, TheDigestChangesWithWhateverDecidesResults) {
  const auto digest = read().digest;
  EXPECT_EQ(read().digest, digest);
  EXPECT_NE(read({"goal.budget_usd=101"}).digest, digest);
  write("offers.csv", "instance,usd_per_hour,max_nodes\na,1.5,4\nb,2,8\n");
  EXPECT_NE(read().digest, digest);
}

TEST_F(JobFile, RefusalsAreOneLineEach) {
  using testing::HasSubstr;
  EXPECT_THAT(refusal({"goal.scenario=deadline"}), HasSubstr("needs goal.deadline_hours"));
  EXPECT_THAT(refusal({"goal.budget_usd=-1"}), HasSubstr("goal.budget_usd = -1: must be"));
  EXPECT_THAT(refusal({"goal.scenario=cheap"}), HasSubstr("must be fastest | deadline | budget"));
  EXPECT_THAT(refusal({"space.nodes=[1.5]"}), HasSubstr("counts are whole numbers"));
  EXPECT_THAT(refusal({"space.nodes=[16]"}), HasSubstr("no deployment to choose from"));
  EXPECT_THAT(refusal({"space.spot=on"}), HasSubstr("needs offers with spot_usd_per_hour"));
  EXPECT_THAT(refusal({"space.instances=['c']"}), HasSubstr("no type c"));
  EXPECT_THAT(refusal({"space.offers=none.csv"}), HasSubstr("none.csv"));
  EXPECT_THAT(refusal({"probe.minutes='10 + m'"}), HasSubstr("probe.minutes"));
  EXPECT_THAT(refusal({"probe.minutes='n - 1'"}), HasSubstr("gives 0 minutes for n = 1"));
  EXPECT_THAT(refusal({"probe.table="}), HasSubstr("needs probe.table"));
  EXPECT_THAT(refusal({"probe.kind=command"}), HasSubstr("needs probe.command"));
  EXPECT_THAT(refusal({"probe.kind=command", "probe.command='run {node}'"}),
              HasSubstr("{node} in a command"));
  EXPECT_THAT(refusal({"job.sample=3"}), HasSubstr("did you mean job.samples"));
  write("speeds.csv", "instance,nodes,samples_per_s\na,1,nan\n");
  EXPECT_THAT(refusal({}), HasSubstr("speeds.csv:2: samples_per_s = nan: must be a finite number"));
  write("speeds.csv", "instance,nodes,samples_per_s\na,1,-2\n");
  EXPECT_THAT(refusal({}), HasSubstr("speeds.csv:2: samples_per_s = -2: must be above 0"));
  write("speeds.csv", "instance,nodes,samples_per_s\na,1,2\na,1,3\n");
  EXPECT_THAT(refusal({}), HasSubstr("speeds.csv:3: a x 1 is there twice"));
  write("speeds.csv", "instance,nodes,samples_per_s\nc,1,2\n");
  EXPECT_THAT(refusal({}), HasSubstr("speeds.csv:2: type c is not among the offers"));
  write("speeds.csv", "instance,nodes\na,1\n");
  EXPECT_THAT(refusal({}), HasSubstr("no column samples_per_s"));
  write("speeds.csv", "instance,nodes,samples_per_s\n");
  EXPECT_THAT(refusal({}), HasSubstr("no speeds below the line of names"));
}

TEST_F(JobFile, PredictionsCoverAllOrNone) {
  write("predicted.csv", "instance,nodes,samples_per_s\na,1,11\na,2,20\nb,1,25\n");
  EXPECT_EQ(read({"space.predicted=predicted.csv"}).space.candidates[2].predicted_samples_per_s, 25);
  write("predicted.csv", "instance,nodes,samples_per_s\na,1,11\n");
  EXPECT_THAT(refusal({"space.predicted=predicted.csv"}), testing::HasSubstr("no speed for a x 2"));
}

TEST_F(JobFile, EveryMethodRuns) {
  for (const char* method : {"heterbo", "bo", "cherrypick", "random", "exhaustive", "ernest"}) {
    const auto job = read({cat("search.method=", method)});
    ReplayProfiler profiler(*job.table);
    MemoryLog log;
    const auto outcome = run_search(job.setup(), profiler, log);
    ASSERT_TRUE(outcome.chosen) << method;
    EXPECT_EQ(job.space.candidates[outcome.chosen->candidate].deployment, (Deployment{"b", 1})) << method;
  }
}

}  // namespace
}  // namespace trireme::deploy
