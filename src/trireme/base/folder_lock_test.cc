#include "trireme/base/folder_lock.h"

#include <gtest/gtest.h>

#include <optional>

#include "trireme/base/error.h"

namespace trireme {
namespace {

// Locks belong to open files, not to processes, so two in one process exclude each other like two processes.
TEST(FolderLock, SecondHolderIsRefusedWhileTheFirstLives) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "folder_lock";
  std::filesystem::create_directories(folder);
  std::optional<FolderLock> first(folder);
  try {
    FolderLock second(folder);
    ADD_FAILURE() << "two hold it";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_NE(std::string(e.what()).find(folder.string()), std::string::npos) << e.what();
  }
  first.reset();
  FolderLock third(folder);
}

TEST(FolderLock, MissingFolderIsNamed) {
  EXPECT_THROW(FolderLock("/nonexistent/folder"), Error);
}

}  // namespace
}  // namespace trireme
