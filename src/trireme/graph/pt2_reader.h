#pragma once
// Reads the archive that torch.export.save writes (schema major 8) into spec values. Torch-free.
#include <filesystem>
#include <memory>
#include <span>

#include "trireme/spec/graph.h"

namespace trireme::graph {

// An open `.pt2`: the graph, and its weights' bytes in the file's map.
class Pt2File {
 public:
  // Error(input) names the file and what is wrong: not a zip, truncated, overlapping entries, broken JSON, a
  // weight whose size does not match, pickled weights, an older format. Error(unsupported) for another schema
  // major.
  explicit Pt2File(const std::filesystem::path& path);
  ~Pt2File();
  const std::filesystem::path& path() const;
  const spec::Graph& graph() const;
  // The whole storage that a spec::Weight views; lives as long as this object.
  std::span<const std::byte> storage(const std::string& record) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::graph
