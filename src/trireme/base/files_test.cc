#include "trireme/base/files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "trireme/base/error.h"

namespace trireme {
namespace {
namespace fs = std::filesystem;

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / cat("trireme_files_", ::getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  size_t entries() const { return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {})); }

  template <typename F>
  void expect_error(ErrorCode code, const std::string& part, F call) {
    try {
      call();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(folder_.string()), std::string::npos) << error.what();
    }
  }

  fs::path folder_;
};

// A file size limit stands in for a full disk: write() stops after 4 KiB and then fails. Ends the process.
[[noreturn]] void write_beyond_the_size_limit(const fs::path& path) {
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{4096, 4096};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  try {
    write_file(path, std::string(100'000, 'n'));
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::exit(error.code() == ErrorCode::io ? 7 : 8);
  }
  std::exit(0);
}

TEST_F(Files, WhatIsWrittenIsRead) {
  const std::string content("a\0b\xff\n", 5);
  write_file(folder_ / "x", content);
  EXPECT_EQ(read_file(folder_ / "x"), content);
  write_file(folder_ / "x", "shorter");
  EXPECT_EQ(read_file(folder_ / "x"), "shorter");
  EXPECT_EQ(entries(), 1u) << "a temporary file was left";
}

TEST_F(Files, LargeContentSurvives) {
  std::string content(300'001, 'q');
  content[300'000] = 'z';
  write_file(folder_ / "x", content);
  EXPECT_EQ(read_file(folder_ / "x"), content);
}

TEST_F(Files, NewFilesObeyTheUmask) {
  const auto before = ::umask(027);
  write_file(folder_ / "x", "1");
  ::umask(before);
  EXPECT_EQ(fs::status(folder_ / "x").permissions(), fs::perms(0640));
}

TEST_F(Files, MissingFilesAndFoldersAreNamed) {
  expect_error(ErrorCode::input, "No such file", [&] { read_file(folder_ / "absent"); });
  expect_error(ErrorCode::input, "is a folder", [&] { read_file(folder_); });
  expect_error(ErrorCode::input, "No such file", [&] { MappedFile map(folder_ / "absent"); });
  expect_error(ErrorCode::input, "is a folder", [&] { MappedFile map(folder_); });
}

TEST_F(Files, SpecialFilesAreRefusedAtOnce) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", folder_ / "device");
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string socket = (folder_ / "socket").string();
  ASSERT_LT(socket.size(), sizeof address.sun_path);
  socket.copy(address.sun_path, socket.size());
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  for (const char* name : {"pipe", "device", "socket"}) {
    expect_error(ErrorCode::input, "not a regular file", [&] { read_file(folder_ / name); });
    expect_error(ErrorCode::input, "not a regular file", [&] { MappedFile map(folder_ / name); });
    expect_error(ErrorCode::input, "not a regular file", [&] { write_file(folder_ / name, "1"); });
    EXPECT_FALSE(fs::is_regular_file(folder_ / name));
  }
  ::close(fd);
  EXPECT_EQ(entries(), 3u) << "a temporary file was left";
}

TEST_F(Files, AFailedWriteLeavesNothingBehind) {
  expect_error(ErrorCode::io, "No such file", [&] { write_file(folder_ / "absent" / "x", "1"); });
  fs::create_directory(folder_ / "taken");
  expect_error(ErrorCode::io, "Is a directory", [&] { write_file(folder_ / "taken", "1"); });
  EXPECT_EQ(entries(), 1u) << "a temporary file was left";
}

TEST_F(Files, AWriteThatEndsHalfwayKeepsTheOldContent) {
  write_file(folder_ / "x", "old");
  ASSERT_EXIT(write_beyond_the_size_limit(folder_ / "x"), ::testing::ExitedWithCode(7),
              "x: cannot write: File too large");
  EXPECT_EQ(read_file(folder_ / "x"), "old");
  EXPECT_EQ(entries(), 1u) << "a temporary file was left";
}

TEST_F(Files, MapsShowTheContent) {
  write_file(folder_ / "x", "mapped");
  MappedFile map(folder_ / "x");
  const MappedFile moved(std::move(map));
  ASSERT_EQ(moved.bytes().size(), 6u);
  EXPECT_EQ(std::memcmp(moved.bytes().data(), "mapped", 6), 0);
  EXPECT_TRUE(
      map.bytes().empty());  // NOLINT(bugprone-use-after-move): the moved-from map is empty by contract
  write_file(folder_ / "empty", "");
  EXPECT_TRUE(MappedFile(folder_ / "empty").bytes().empty());
}

}  // namespace
}  // namespace trireme
