#include "trireme/serve/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::serve {
namespace {

using ::testing::HasSubstr;

ServingProfile example() {
  ServingProfile p;
  p.model = "m";
  p.instance_type = "c5.large";
  p.instances = 2;
  p.threads = 1;
  p.times = {{1, 0.01}, {2, 0.015}};
  p.slo_s = 0.1;
  p.margin_s = 0.001;
  p.choice = {2, 0.0075, 2 / 0.015};
  return p;
}

TEST(Profile, ReadsBackWhatItWrote) {
  const auto p = parse_profile(to_json(example()), "p.json");
  EXPECT_EQ(p.times, example().times);
  EXPECT_EQ(p.model, "m");
  EXPECT_EQ(p.choice.rows, 2);
  EXPECT_DOUBLE_EQ(p.choice.wait_s, 0.0075);
  EXPECT_DOUBLE_EQ(p.capacity_per_min(), 16000);
  EXPECT_EQ(profile_table(p, "p.json", "m"), p.times);
}

TEST(Profile, RefusesWhatItCannotUse) {
  const auto refuse = [](std::string from, std::string to, const std::string& part) {
    std::string text = to_json(example());
    const auto at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    try {
      parse_profile(text, "p.json");
      ADD_FAILURE() << to;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("p.json: "));
      EXPECT_THAT(e.what(), HasSubstr(part));
    }
  };
  refuse("serving_profile", "graph", "not a serving_profile");
  refuse("\"version\": 1", "\"version\": 2", "newer than");
  refuse("\"rows\": 1,", "\"rows\": 3,", "rising rows");
  refuse("\"times\"", "\"tables\"", "times");
  refuse("0.015", "0", "above 0");
  refuse("{", "[", "not valid JSON");
  EXPECT_THROW(profile_table(example(), "p.json", "other"), Error);
}

}  // namespace
}  // namespace trireme::serve
