#include "trireme/base/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "trireme/base/error.h"

namespace trireme {

FolderLock::FolderLock(const std::filesystem::path& folder)
    : fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (fd_ < 0) fail(ErrorCode::io, folder.string(), ": cannot open: ", std::strerror(errno));
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(fd_);
  fail(ErrorCode::usage, folder.string(),
       ": another process is writing there; give another folder, or wait for its end");
}

FolderLock::~FolderLock() {
  ::close(fd_);
}

}  // namespace trireme
