#include "trireme/base/error.h"

#include <gtest/gtest.h>

#include "trireme/base/result.h"

namespace trireme {
namespace {

TEST(Error, WrongCallsAndInputsExitWithTwoFailuresWithOne) {
  for (const auto code : {ErrorCode::usage, ErrorCode::input, ErrorCode::unsupported})
    EXPECT_EQ(exit_code(code), 2);
  for (const auto code : {ErrorCode::io, ErrorCode::peer_lost, ErrorCode::timeout, ErrorCode::diverged,
                          ErrorCode::cancelled, ErrorCode::internal}) {
    EXPECT_EQ(exit_code(code), 1) << name(code);
  }
}

TEST(Error, FailJoinsItsPartsAndKeepsTheCode) {
  try {
    fail(ErrorCode::io, "rank ", 3, ": disk full");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_STREQ(error.what(), "rank 3: disk full");
    return;
  }
  FAIL() << "nothing was thrown";
}

TEST(Error, ChecksAbortWithTheirReason) {
  EXPECT_DEATH(TRIREME_CHECK(1 + 1 == 3, "arithmetic ", 42), "bug: .*1 \\+ 1 == 3 is false: arithmetic 42");
}

TEST(Nearest, FindsTheClosestWithinHalfTheWord) {
  const std::vector<std::string> known{"ring", "two_phase", "off"};
  EXPECT_EQ(nearest("rnig", known), "ring");
  EXPECT_EQ(nearest("two-phase", known), "two_phase");
  EXPECT_EQ(nearest("hierarchical", known), "");
  EXPECT_EQ(nearest("", {}), "");
}

TEST(Result, CarriesAValueOrAFailure) {
  Result<int> good(7);
  ASSERT_TRUE(good);
  EXPECT_EQ(good.value(), 7);
  Result<int> bad(Failure{ErrorCode::timeout, "rank 1 did not answer in 5 s"});
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.failure().code, ErrorCode::timeout);
  try {
    bad.value();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    EXPECT_STREQ(error.what(), "rank 1 did not answer in 5 s");
  }
}

}  // namespace
}  // namespace trireme
