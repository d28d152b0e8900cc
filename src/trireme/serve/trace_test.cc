#include "trireme/serve/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/base/error.h"

namespace trireme::serve {
namespace {

using ::testing::HasSubstr;

std::vector<double> all(Arrivals arrivals) {
  std::vector<double> times;
  while (const auto next = arrivals.next()) times.push_back(*next);
  return times;
}

TEST(Trace, ReadsCountsPerMinuteAndPerSecond) {
  EXPECT_EQ(parse_trace("minute,requests,more\n0,120,9\r\n1,60,9\n", "t").spans,
            (std::vector<LoadSpan>{{60, 120}, {60, 60}}));
  EXPECT_EQ(parse_trace("second,requests\n7,3\n8,4", "t").spans, (std::vector<LoadSpan>{{1, 3}, {1, 4}}));
  EXPECT_EQ(parse_trace("second,requests\n7,3\n8,4", "t").seconds(), 2);
}

TEST(Trace, ReadsSingleArrivals) {
  const auto trace =
      parse_trace("TIMESTAMP,Tokens\n2023-11-16 23:59:59.5,1\n2023-11-17 00:00:01.25,2\n", "t");
  ASSERT_EQ(trace.arrivals.size(), 2u);
  EXPECT_NEAR(trace.arrivals[1], 1.75, 1e-6);
}

TEST(Trace, NamesTheLineThatIsWrong) {
  for (const auto& [text, part] : std::vector<std::pair<const char*, const char*>>{
           {"", "empty"},
           {"minute,requests\n", "empty"},
           {"time,requests\n", "t.csv:1: the head line"},
           {"minute\n0\n", "t.csv:1"},
           {"minute,requests\n0\n", "t.csv:2: columns are missing"},
           {"minute,requests\n0,x\n", "t.csv:2"},
           {"minute,requests\n0,-1\n", "t.csv:2"},
           {"minute,requests\n0,1\n2,1\n", "t.csv:3: 2 does not follow 0"},
           {"TIMESTAMP\nyesterday\n", "t.csv:2"},
           {"TIMESTAMP\n2023-11-16 10:00:01\n2023-11-16 10:00:00\n", "t.csv:3: times must rise"}}) {
    try {
      parse_trace(text, "t.csv");
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(part));
    }
  }
}

TEST(Arrivals, EvenGapsFollowTheRate) {
  const auto times = all({{{{1, 4}, {1, 0}, {1, 2}}, {}}, Gaps::even, 1, 0});
  EXPECT_EQ(times, (std::vector<double>{0.125, 0.375, 0.625, 0.875, 2.25, 2.75}));
}

TEST(Arrivals, ExponentialGapsHaveTheMeanAndSpreadOfAPoissonProcess) {
  const auto times = all({constant_rate(50, 1000), Gaps::exponential, 2, 7});
  EXPECT_NEAR(static_cast<double>(times.size()), 1e5, 5 * std::sqrt(1e5));
  double squares = 0;
  for (size_t i = 1; i < times.size(); ++i) squares += std::pow((times[i] - times[i - 1]) * 100 - 1, 2);
  EXPECT_NEAR(squares / static_cast<double>(times.size()), 1, 0.05);
  EXPECT_EQ(times, all({constant_rate(50, 1000), Gaps::exponential, 2, 7}));  // the seed decides
}

TEST(Arrivals, SingleArrivalsAreReplayedFasterByTheScale) {
  EXPECT_EQ(all({{{}, {0, 1, 3}}, Gaps::exponential, 2, 0}), (std::vector<double>{0, 0.5, 1.5}));
}

}  // namespace
}  // namespace trireme::serve
