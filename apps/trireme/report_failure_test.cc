#include "report_failure.h"

#include <gtest/gtest.h>

namespace trireme::app {
namespace {

TEST(ErrorFile, HasTheFormThatTorchrunReads) {
  EXPECT_EQ(error_file_text("timeout: rank 1 \"left\"", 1700000000),
            R"({"message":{"extraInfo":{"timestamp":"1700000000"},"message":"timeout: rank 1 \"left\""}})");
}

TEST(ErrorFile, SurvivesBytesThatAreNoText) {
  EXPECT_NE(error_file_text("bad \xff byte", 1).find("bad \xef\xbf\xbd byte"), std::string::npos);
}

}  // namespace
}  // namespace trireme::app
