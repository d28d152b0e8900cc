#include "trireme/transport/tcp/frames.h"

#include <gtest/gtest.h>

namespace trireme::transport::tcp {
namespace {

constexpr int kSender = 7;
const uint64_t kTag = uint64_t{kSender} << 52 | 12345;

const Frame kGood[] = {{FrameKind::message, 1, kTag, 100, 0, 100},
                       {FrameKind::message, 2, kTag, 0, 0, 0},
                       {FrameKind::announce, 0xffffffff, kTag, kLongestMessage, 0, 0},
                       {FrameKind::piece, 3, 0, 1000, 999, 1},
                       {FrameKind::farewell, 0, 0, 255, 0, 255}};

TEST(Frames, KeepTheirFields) {
  for (const Frame& frame : kGood) {
    auto read = to_frame(to_header(frame), kSender);
    ASSERT_TRUE(read.ok()) << read.failure().message;
    EXPECT_EQ(read.value(), frame);
  }
}

TEST(Frames, ThatCannotBeAreRefused) {
  const auto reason = [](const Frame& frame, uint64_t longest = kLongestMessage) {
    const auto read = to_frame(to_header(frame), kSender, longest);
    return read.ok() ? "" : read.failure().message;
  };
  struct Case {
    Frame frame;
    const char* what;
  };
  const uint64_t huge = ~uint64_t{0}, other = uint64_t{kSender + 1} << 52;
  for (const Case& c :
       {Case{{FrameKind{0}, 0, 0, 0, 0, 0}, "unknown kind"},
        Case{{FrameKind{9}, 0, 0, 0, 0, 0}, "unknown kind"},
        Case{{FrameKind::message, 0, other, 1, 0, 1}, "wrong sender"},
        Case{{FrameKind::message, 0, kTag, 10, 0, 5}, "without announcement"},
        Case{{FrameKind::message, 0, kTag, kLongestMessage + 1, 0, kLongestMessage + 1}, "longer than any"},
        Case{{FrameKind::announce, 0, kTag, 10, 0, 10}, "announcement with payload"},
        Case{{FrameKind::piece, 0, 0, 10, 8, 3}, "outside"},
        Case{{FrameKind::piece, 0, 0, 10, huge, 2}, "outside"},
        Case{{FrameKind::piece, 0, 0, 10, 2, huge}, "outside"},
        Case{{FrameKind::piece, 0, 0, 10, 10, 0}, "empty piece"},
        Case{{FrameKind::piece, 0, kTag, 10, 0, 10}, "wrong sender"},
        Case{{FrameKind::farewell, 0, 0, 256, 0, 256}, "impossible length"}}) {
    EXPECT_NE(reason(c.frame).find(c.what), std::string::npos) << c.what << ": " << reason(c.frame);
    EXPECT_NE(reason(c.frame).find("rank 7"), std::string::npos);
  }
  EXPECT_NE(reason(kGood[0], 99), "");
  Header header = to_header(kGood[0]);
  header[2] = std::byte{1};
  EXPECT_FALSE(to_frame(header, kSender).ok());
}

}  // namespace
}  // namespace trireme::transport::tcp
