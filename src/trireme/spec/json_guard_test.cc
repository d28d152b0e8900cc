#include "trireme/spec/json_guard.h"

#include <gtest/gtest.h>

#include <string>

#include "trireme/base/error.h"

namespace trireme::spec {
namespace {

TEST(JsonGuard, CountsBracketsOutsideStrings) {
  const std::string brackets(300, '[');
  EXPECT_THROW(check_json_depth(brackets), Error);
  EXPECT_NO_THROW(check_json_depth("\"" + brackets + "\""));
  EXPECT_NO_THROW(check_json_depth(R"("a \" [" )" + std::string(200, '{')));
  EXPECT_THROW(check_json_depth(R"("a \\" )" + std::string(201, '{')), Error);
}

TEST(JsonGuard, ClosedBracketsDoNotCount) {
  std::string flat;
  for (int i = 0; i < 1000; ++i) flat += "[],{},";
  EXPECT_NO_THROW(check_json_depth(flat));
}

}  // namespace
}  // namespace trireme::spec
