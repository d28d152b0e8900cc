#include "trireme/base/trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace trireme {
namespace {
using std::chrono::microseconds;
using std::chrono::nanoseconds;

TEST(Tracer, WritesSpansInMicrosecondsOnNamedLanes) {
  FakeClock clock;
  Tracer tracer(clock, 3);
  {
    Span outer(&tracer, "main", "step \"1\"");
    clock.advance(microseconds(5));
    Span inner(&tracer, "communication", "send");
    clock.advance(nanoseconds(1500));
  }
  const auto document = nlohmann::json::parse(tracer.to_json());
  std::map<std::string, nlohmann::json> spans, lanes;
  for (const auto& event : document.at("traceEvents")) {
    EXPECT_EQ(event.at("pid"), 3);
    if (event.at("ph") == "X") spans[event.at("name")] = event;
    if (event.at("ph") == "M") lanes[event.at("args").at("name")] = event.at("tid");
  }
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans["step \"1\""].at("ts"), 0.0);
  EXPECT_EQ(spans["step \"1\""].at("dur"), 6.5);
  EXPECT_EQ(spans["send"].at("ts"), 5.0);
  EXPECT_EQ(spans["send"].at("dur"), 1.5);
  EXPECT_EQ(spans["send"].at("tid"), lanes.at("communication"));
  EXPECT_NE(lanes.at("communication"), lanes.at("main"));
}

TEST(Tracer, CountsWhatItDoesNotKeep) {
  FakeClock clock;
  Tracer tracer(clock, 0, 2);
  for (int i = 0; i < 5; ++i) tracer.add("main", "x", nanoseconds(0), nanoseconds(1));
  EXPECT_EQ(nlohmann::json::parse(tracer.to_json()).at("otherData").at("dropped"), 3);
}

TEST(Tracer, NullTracerTakesSpans) {
  Span span(nullptr, "main", "nothing");
}

}  // namespace
}  // namespace trireme
