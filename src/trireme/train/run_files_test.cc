#include "trireme/train/run_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/files.h"

namespace trireme::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class RunFolder : public ::testing::Test {
 protected:
  RunFolder() {
    folder_ = fs::path(::testing::TempDir()) /
              cat("run_", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
  }
  ~RunFolder() override { fs::remove_all(folder_); }
  fs::path metrics() const { return folder_ / "metrics.jsonl"; }
  void write_steps(int64_t first, int64_t last, double loss_scale = 1) {
    RunFiles files(folder_, first);
    for (int64_t step = first; step <= last; ++step)
      files.add({.step = step, .loss = loss_scale / static_cast<double>(step), .step_s = 0.5});
  }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> steps;
    for (const auto& row : read_metrics(metrics())) steps.push_back(row.step);
    return steps;
  }
  std::vector<fs::path> event_files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder_))
      if (entry.path().filename().string().starts_with("events.out.tfevents.")) files.push_back(entry.path());
    return files;
  }
  fs::path folder_;
};

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST_F(RunFolder, RowsReadBackBitForBit) {
  const StepMetrics row{.step = 7,
                        .loss = 0.1 + 0.2,
                        .lr = 1e-3 / 3,
                        .step_s = 0.25,
                        .forward_s = 1.0 / 3,
                        .backward_s = 5e-324,
                        .optimizer_s = 1e300,
                        .exposed_comm_s = 0.125,
                        .codec_s = 0.0625,
                        .bytes_sent = int64_t{1} << 53,
                        .bytes_received = 42,
                        .samples = 56,
                        .eval_loss = static_cast<double>(2.7182817F)};
  RunFiles(folder_, 1).add(row);
  const auto rows = read_metrics(metrics());
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(to_json(rows[0]), to_json(row));
  EXPECT_EQ(rows[0].loss, row.loss);
  EXPECT_EQ(rows[0].backward_s, row.backward_s);
  EXPECT_EQ(rows[0].eval_loss, row.eval_loss);
}

TEST_F(RunFolder, RowsCarryThePublicNames) {
  const auto object = nlohmann::json::parse(to_json(StepMetrics{.step = 1}));
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  EXPECT_THAT(keys, ElementsAre("backward_s", "bytes_received", "bytes_sent", "codec_s", "exposed_comm_s",
                                "forward_s", "loss", "lr", "optimizer_s", "samples", "step", "step_s"));
}

TEST_F(RunFolder, LossThatIsNoNumberReadsBackAsNaN) {
  RunFiles(folder_, 1).add({.step = 1, .loss = std::numeric_limits<double>::quiet_NaN()});
  EXPECT_TRUE(std::isnan(read_metrics(metrics())[0].loss));
}

TEST_F(RunFolder, EachRowIsInTheFileAtOnce) {
  RunFiles files(folder_, 1);
  files.add({.step = 1});
  EXPECT_EQ(read_metrics(metrics()).size(), 1U);
}

TEST_F(RunFolder, ResumeCutsOffTheRowsItWillWriteAgain) {
  write_steps(1, 8);
  write_steps(6, 9, 2);
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9));
  const auto rows = read_metrics(metrics());
  EXPECT_EQ(rows[4].loss, 1.0 / 5);
  EXPECT_EQ(rows[5].loss, 2.0 / 6);
}

TEST_F(RunFolder, ResumeDropsALineThatACrashCutShort) {
  write_steps(1, 3);
  write_file(metrics(), read_file(metrics()) + "{\"step\": 4, \"lo");
  write_steps(3, 4);
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3, 4));
}

TEST_F(RunFolder, ANewRunStartsAfresh) {
  write_steps(1, 5);
  write_steps(1, 2);
  EXPECT_THAT(steps(), ElementsAre(1, 2));
  EXPECT_EQ(event_files().size(), 1U);
}

TEST_F(RunFolder, AResumedRunKeepsTheEarlierEventFile) {
  write_steps(1, 5);
  write_steps(4, 6);
  EXPECT_EQ(event_files().size(), 2U);
}

TEST_F(RunFolder, FinishLeavesSummaryTraceAndReport) {
  RunFiles files(folder_, 1);
  files.add({.step = 1, .loss = 2.5, .step_s = 0.5});
  const Summary summary{.world_size = 2,
                        .steps = 1,
                        .final_loss = 2.5,
                        .median_step_s = 0.5,
                        .samples_per_s = 16,
                        .bytes_sent_per_step = 1000,
                        .codec = "none",
                        .strategy = "ring",
                        .transport = "ucx",
                        .device = "cpu",
                        .peak_rss_bytes = 1 << 20};
  files.finish(summary, "{\"traceEvents\": []}");
  EXPECT_EQ(to_json(read_summary(folder_ / "summary.json")), to_json(summary));
  EXPECT_TRUE(nlohmann::json::parse(read_file(folder_ / "summary.json")).at("eval_loss").is_null());
  EXPECT_EQ(read_file(folder_ / "trace.json"), "{\"traceEvents\": []}");
  EXPECT_THAT(read_file(folder_ / "report.html"), HasSubstr("</html>"));
}

TEST_F(RunFolder, ARunThatBreaksOffHasNoSummaryOfAnEarlierOne) {
  for (const int64_t first_step : {1, 2}) {
    write_steps(1, 1);
    RunFiles(folder_, 2).finish({}, "{}");
    write_steps(first_step, 3);
    for (const char* name : {"summary.json", "trace.json", "report.html"})
      EXPECT_FALSE(fs::exists(folder_ / name)) << name;
  }
}

TEST_F(RunFolder, BrokenFilesAreNamedWithTheirLine) {
  write_steps(1, 2);
  const std::string good = read_file(metrics());
  write_file(metrics(), good + "{\"step\": 3}\n");
  EXPECT_THAT(message_of([&] { read_metrics(metrics()); }), HasSubstr("metrics.jsonl:3: not a row"));
  write_file(metrics(), good + "nonsense\n");
  EXPECT_THAT(message_of([&] { read_metrics(metrics()); }), HasSubstr("metrics.jsonl:3: not a row"));
  EXPECT_THAT(message_of([&] { RunFiles(folder_, 2); }), HasSubstr("metrics.jsonl:3: not a row"));
  EXPECT_EQ(read_file(metrics()), good + "nonsense\n");
  write_file(folder_ / "summary.json", "{\"version\": 2}");
  EXPECT_THAT(message_of([&] { read_summary(folder_ / "summary.json"); }), HasSubstr("summary version 2"));
  write_file(folder_ / "summary.json", "{\"version\": 1}");
  EXPECT_THAT(message_of([&] { read_summary(folder_ / "summary.json"); }), HasSubstr("world_size"));
}

TEST_F(RunFolder, AFileInThePlaceOfTheFolderIsNamed) {
  write_file(folder_, "not a folder");
  const std::string message = message_of([&] { RunFiles(folder_ / "run", 1); });
  EXPECT_THAT(message, HasSubstr(folder_.string()));
  EXPECT_THAT(message, HasSubstr("cannot create the run folder"));
}

TEST(EventWriter, RecordsHaveLengthAndMaskedChecksums) {
  const fs::path folder = fs::path(::testing::TempDir()) / "event_writer";
  fs::remove_all(folder);
  fs::create_directories(folder);
  EventWriter(folder).flush();
  const std::string content = read_file(fs::directory_iterator(folder)->path());
  fs::remove_all(folder);
  // wall time (tag and 8 bytes), then file_version (tag, length, "brain.Event:2")
  ASSERT_EQ(content.size(), 8U + 4 + (1 + 8) + (2 + 13) + 4);
  EXPECT_EQ(content.substr(0, 8), std::string("\x18\0\0\0\0\0\0\0", 8));
  // The masked CRC-32C of that length, as every event file begins.
  EXPECT_EQ(content.substr(8, 4), "\xa3\x7f\x4b\x22");
  EXPECT_EQ(content.substr(8 + 4 + 9 + 2, 13), "brain.Event:2");
}

TEST(RunFiles, TwoRunsDoNotWriteIntoOneFolder) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "run_files_two";
  std::filesystem::remove_all(folder);
  const RunFiles first(folder, 1);
  EXPECT_THROW(RunFiles(folder, 1), Error);
}

}  // namespace
}  // namespace trireme::train
