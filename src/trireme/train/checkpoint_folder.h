#pragma once
// Which checkpoints a folder holds. One is complete once it has its final name, step_N, and an index.
#include <cstdint>
#include <filesystem>
#include <vector>

namespace trireme::train {

inline constexpr const char* kCheckpointIndex = "index.json";

// checkpoints/step_N.
std::filesystem::path checkpoint_folder(const std::filesystem::path& checkpoints, int64_t step);
// Where the checkpoint of `step` is while it is being written.
std::filesystem::path unfinished_folder(const std::filesystem::path& checkpoints, int64_t step);
// Gives an unfinished folder, which is complete and synced, its final name; one that has this name already,
// of an earlier attempt, goes. std::filesystem::filesystem_error.
void publish_checkpoint(const std::filesystem::path& checkpoints, int64_t step);
// Removes what a crash left behind; save_checkpoint does it too.
void remove_unfinished(const std::filesystem::path& checkpoints);
// Removes the checkpoints of later steps, which an earlier attempt left and this one replaces.
void remove_later(const std::filesystem::path& checkpoints, int64_t step);
// Removes all but the newest `keep_last` (0: none).
void keep_newest(const std::filesystem::path& checkpoints, int64_t keep_last);
// Steps of the complete checkpoints in a checkpoints folder, rising; empty when there is no such folder.
std::vector<int64_t> checkpoint_steps(const std::filesystem::path& checkpoints);
// `where`: a step folder, a run folder (its newest complete checkpoint) or a checkpoints folder. Error(input)
// otherwise.
std::filesystem::path find_checkpoint(const std::filesystem::path& where);

}  // namespace trireme::train
