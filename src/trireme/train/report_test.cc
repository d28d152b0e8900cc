#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/train/report_chart.h"
#include "trireme/train/run_files.h"

namespace trireme::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Ticks, AreRoundAndInside) {
  EXPECT_THAT(ticks(0, 10, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(ticks(2.31, 3.9, 4), ElementsAre(2.5, 3.0, 3.5));
  EXPECT_THAT(ticks(-1, 1, 4), ElementsAre(-1, -0.5, 0, 0.5, 1));
}

TEST(Ticks, EndForARangeThatIsOnlyRounding) {
  EXPECT_LE(ticks(0.39999999999999997, 0.4, 5).size(), 11U);
  EXPECT_LE(ticks(1e300, 1.1e300, 5).size(), 11U);
}

TEST(Thinned, KeepsShortSeriesAndAveragesLongOnes) {
  const std::vector<Point> points{{0, 0}, {1, 2}, {2, 4}, {3, 6}};
  EXPECT_EQ(thinned(points, 4), points);
  EXPECT_THAT(thinned(points, 2), ElementsAre(Point{0.5, 1}, Point{2.5, 5}));
}

TEST(LineChart, DrawsTheCornersOfItsData) {
  const std::string svg = to_svg(LineChart{"t", "step", {{"run", {{0, 1}, {10, 1}, {20, 3}}}}});
  // Left and right edge of the plot; equal heights for equal values.
  EXPECT_THAT(svg, HasSubstr("points='64.0,"));
  EXPECT_THAT(svg, HasSubstr(" 624.0,"));
  EXPECT_EQ(count_of(svg, "<polyline"), 1U);
}

TEST(LineChart, LeavesOutWhatIsNotFinite) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(to_svg(LineChart{"t", "step", {{"run", {{0, 1}, {1, nan}, {2, 3}}}}}), Not(HasSubstr("nan")));
  EXPECT_THAT(to_svg(LineChart{"t", "step", {{"run", {{0, nan}}}}}), HasSubstr("no points yet"));
  EXPECT_THAT(to_svg(LineChart{"t", "step", {{"run", {{5, 2}}}}}), Not(HasSubstr("nan")));
}

TEST(BarChart, PartsFollowEachOther) {
  const std::string svg = to_svg(BarChart{"t", {"a", "b"}, {{"run", {1, 3}}}});
  // 150 to 624 is the plot: a quarter, then three.
  EXPECT_THAT(svg, HasSubstr("x='150.0' y='42.0' width='118.5'"));
  EXPECT_THAT(svg, HasSubstr("x='268.5' y='42.0' width='355.5'"));
}

class Report : public ::testing::Test {
 protected:
  Report() : base_(fs::path(::testing::TempDir()) / "report_test") { fs::remove_all(base_); }
  ~Report() override { fs::remove_all(base_); }
  fs::path run(const std::string& name, double step_s, int64_t bytes, bool finished = true) {
    RunFiles files(base_ / name, 1);
    for (int64_t step = 1; step <= 1000; ++step)
      files.add({.step = step,
                 .loss = 5.0 / static_cast<double>(step),
                 .step_s = step_s,
                 .forward_s = step_s / 4,
                 .backward_s = step_s / 2,
                 .exposed_comm_s = step_s / 8,
                 .bytes_sent = bytes});
    if (finished)
      files.finish({.world_size = 2,
                    .steps = 1000,
                    .final_loss = 0.005,
                    .median_step_s = step_s,
                    .samples_per_s = 16 / step_s,
                    .bytes_sent_per_step = bytes,
                    .codec = name,
                    .strategy = "ring",
                    .transport = "ucx",
                    .device = "cpu"},
                   "{}");
    return base_ / name;
  }
  fs::path base_;
};

TEST_F(Report, ComparesRunsSideBySide) {
  const std::string html = report_html({run("plain", 0.4, 4'000'000), run("onebit", 0.1, 125'000)});
  EXPECT_THAT(html, HasSubstr("<th>plain</th><th>onebit</th>"));
  EXPECT_THAT(html, HasSubstr("<small>0.25×</small>"));  // step time
  EXPECT_THAT(html, HasSubstr("<small>4.00×</small>"));  // samples per second
  EXPECT_THAT(html, HasSubstr("<small>0.03×</small>"));  // bytes
  EXPECT_EQ(count_of(html, "<svg"), 4U);
  EXPECT_EQ(count_of(html, "<polyline"), 6U);
}

TEST_F(Report, IsOnePageWithNothingFromElsewhere) {
  const std::string html = report_html({run("plain", 0.4, 4'000'000)});
  for (const char* outside : {"<script", "http:", "https:", "src=", "@import", "url("})
    EXPECT_THAT(html, Not(HasSubstr(outside)));
  EXPECT_THAT(html, Not(HasSubstr("compares with")));
}

TEST_F(Report, ShowsARunThatHasNotFinished) {
  const std::string html = report_html({run("running", 0.4, 100, false)});
  EXPECT_THAT(html, HasSubstr("<tr><th>Steps</th><td>1000</td></tr>"));
  EXPECT_THAT(html, HasSubstr("<tr><th>Codec</th><td>–</td></tr>"));
}

TEST_F(Report, EscapesNamesAndShowsTheConfiguration) {
  const auto folder = run("a<b>", 0.4, 100);
  write_file(folder / "config.toml", "graph = \"<model>\"\n");
  const std::string html = report_html({folder});
  EXPECT_THAT(html, HasSubstr("a&lt;b&gt;"));
  EXPECT_THAT(html, HasSubstr("graph = &quot;&lt;model&gt;&quot;"));
  EXPECT_THAT(html, Not(HasSubstr("a<b>")));
}

TEST_F(Report, RunsOfOneNameAreToldApartByTheirPaths) {
  const auto first = run("x/run", 0.4, 100), second = run("y/run", 0.4, 100);
  EXPECT_THAT(report_html({first, second}), HasSubstr("<th>" + second.string() + "</th>"));
}

TEST_F(Report, NamesAFolderThatIsNoRun) {
  fs::create_directories(base_);
  try {
    report_html({base_});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::input);
    EXPECT_THAT(error.what(), HasSubstr("metrics.jsonl"));
  }
}

}  // namespace
}  // namespace trireme::train
