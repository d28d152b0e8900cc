#pragma once
// One writer per folder, among the processes of one machine.
#include <filesystem>

namespace trireme {

// Holds an existing folder while it lives, and ends with the process however that ends. Error(usage) when
// another process holds it; on a file system without such locks it holds nothing.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_;
};

}  // namespace trireme
