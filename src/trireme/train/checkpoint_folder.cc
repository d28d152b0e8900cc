#include "trireme/train/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <system_error>

#include "trireme/base/error.h"
#include "trireme/base/files.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStep = "step_";
// Every name that is not yet, or no longer, a checkpoint starts with a dot.
constexpr std::string_view kHidden = ".", kTemporary = ".tmp-", kAside = ".old-", kDiscarded = ".gone-";

// The number in "step_N", or nothing for another name.
std::optional<int64_t> step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  int64_t step = 0;
  if (!name.starts_with(kStep)) return {};
  const char *first = name.data() + kStep.size(), *last = name.data() + name.size();
  const auto [end, error] = std::from_chars(first, last, step);
  if (error != std::errc{} || end != last || step < 0) return {};
  return step;
}

// Under a hidden name first: what a crash leaves of it is not taken for a checkpoint.
void discard(const fs::path& checkpoints, int64_t step) {
  const fs::path hidden = checkpoints / cat(kDiscarded, kStep, step);
  fs::rename(checkpoint_folder(checkpoints, step), hidden);
  fs::remove_all(hidden);
}

}  // namespace

fs::path checkpoint_folder(const fs::path& checkpoints, int64_t step) {
  return checkpoints / cat(kStep, step);
}

fs::path unfinished_folder(const fs::path& checkpoints, int64_t step) {
  return checkpoints / cat(kTemporary, kStep, step);
}

void publish_checkpoint(const fs::path& checkpoints, int64_t step) {
  const fs::path temporary = unfinished_folder(checkpoints, step),
                 final = checkpoint_folder(checkpoints, step);
  // A folder cannot be renamed over another one; the older attempt's steps aside first.
  const fs::path aside = checkpoints / cat(kAside, kStep, step);
  const bool replaces = fs::exists(final);
  if (replaces) fs::rename(final, aside);
  fs::rename(temporary, final);
  sync_path(checkpoints);
  if (replaces) fs::remove_all(aside);
}

void remove_later(const fs::path& checkpoints, int64_t step) {
  for (const int64_t s : checkpoint_steps(checkpoints)) {
    if (s > step) discard(checkpoints, s);
  }
}

void keep_newest(const fs::path& checkpoints, int64_t keep_last) {
  const std::vector<int64_t> steps = checkpoint_steps(checkpoints);
  const auto keep = static_cast<size_t>(keep_last);
  for (size_t i = 0; keep > 0 && i + keep < steps.size(); ++i) discard(checkpoints, steps[i]);
}

void remove_unfinished(const fs::path& checkpoints) {
  std::vector<fs::path> hidden;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(checkpoints, none)) {
    if (entry.is_directory() && entry.path().filename().string().starts_with(kHidden))
      hidden.push_back(entry.path());
  }
  for (const fs::path& path : hidden) {
    const std::string name = path.filename().string();
    const fs::path replaced = checkpoints / name.substr(std::min(name.size(), kAside.size()));
    // A crash between the two renames of publish(): the old one is still the newest complete checkpoint.
    if (name.starts_with(kAside) && !fs::exists(replaced)) {
      fs::rename(path, replaced);
    } else {
      fs::remove_all(path);
    }
  }
}

std::vector<int64_t> checkpoint_steps(const fs::path& checkpoints) {
  std::vector<int64_t> steps;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(checkpoints, none)) {
    const auto step = step_of(entry.path());
    if (step && fs::exists(entry.path() / kCheckpointIndex)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

fs::path find_checkpoint(const fs::path& where) {
  if (!fs::exists(where)) fail(ErrorCode::input, where.string(), ": no such run or checkpoint folder");
  if (step_of(where.filename().empty() ? where.parent_path() : where)) {
    if (!fs::exists(where / kCheckpointIndex)) {
      fail(ErrorCode::input, where.string(), ": not a complete checkpoint, it has no ", kCheckpointIndex);
    }
    return where;
  }
  for (const fs::path& folder : {where / "checkpoints", where}) {
    const auto steps = checkpoint_steps(folder);
    if (!steps.empty()) return checkpoint_folder(folder, steps.back());
  }
  fail(ErrorCode::input, where.string(), ": holds no complete checkpoint (checkpoints/step_N with ",
       kCheckpointIndex, ")");
}

}  // namespace trireme::train
