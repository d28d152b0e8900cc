#include "trireme/base/json_problem.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme {
namespace {

std::string problem(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return json_problem(error);
  }
  return "nothing was thrown";
}

TEST(JsonProblem, SaysWhereTheTextBreaksButNotWhatItHolds) {
  for (const std::string text :
       {"{\"config\": \"secret", "{\"config\": \xff\xfe\x80}", "{\"config\": secret}"}) {
    const auto told = problem([&] { nlohmann::json::parse(text).size(); });
    EXPECT_TRUE(told.starts_with("not valid JSON from byte 1")) << told;
    EXPECT_EQ(told.find("secret"), std::string::npos) << told;
    for (const char c : told) EXPECT_TRUE(c >= ' ' && c <= '~') << told;
  }
}

TEST(JsonProblem, KeepsTheNamesOfKeysAndTypes) {
  const auto json = nlohmann::json::parse(R"({"step": "one"})");
  EXPECT_EQ(problem([&] { json.at("samples").size(); }), "key 'samples' not found");
  EXPECT_EQ(problem([&] { json.at("step").get<int>(); }), "type must be number, but is string");
}

TEST(JsonProblem, LeavesOtherErrorsAlone) {
  EXPECT_EQ(problem([] { fail(ErrorCode::input, "nested too deep"); }), "nested too deep");
}

}  // namespace
}  // namespace trireme
