#include "trireme/graph/pt2_metadata.h"

#include <vector>

namespace trireme::graph {
namespace {

constexpr size_t kShownCode = 120;  // an error stays a readable line

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const auto end = text.find('\n');
    lines.push_back(trimmed(text.substr(0, end)));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  }
  return lines;
}

struct Frame {
  std::string_view file, place, code;  // place: line 41, in forward
};

// File "model.py", line 41, in forward
bool parse_frame(std::string_view line, Frame& frame) {
  constexpr std::string_view kBegin = "File \"", kLine = "\", line ";
  if (!line.starts_with(kBegin)) return false;
  const auto end = line.find(kLine);
  if (end == std::string_view::npos) return false;
  frame = {line.substr(kBegin.size(), end - kBegin.size()), line.substr(end + kLine.size()), {}};
  return true;
}

// Generated code ("<eval_with_key>.7") is not the reader's either.
bool inside_torch(std::string_view file) {
  return file.starts_with("torch/") || file.find("site-packages/torch/") != std::string_view::npos ||
         file.starts_with("<");
}

}  // namespace

std::string innermost_module(std::string_view stack) {
  if (const auto last = stack.rfind(';'); last != std::string_view::npos) stack = stack.substr(last + 1);
  const auto first_comma = stack.find(','), last_comma = stack.rfind(',');
  if (first_comma == last_comma) return {};
  const auto path = stack.substr(first_comma + 1, last_comma - first_comma - 1);
  return std::string(path.starts_with("_empty_nn_module_stack") ? std::string_view{} : path);
}

std::string source_line(std::string_view stack_trace) {
  Frame chosen, frame;
  bool in_frame = false;
  std::vector<Frame> frames;
  for (const auto line : lines_of(stack_trace)) {
    if (parse_frame(line, frame)) {
      frames.push_back(frame);
      in_frame = true;
    } else if (in_frame && frames.back().code.empty()) {
      frames.back().code = line;
    }
  }
  if (frames.empty()) return {};
  chosen = frames.back();
  for (const auto& f : frames)
    if (!inside_torch(f.file)) chosen = f;
  const auto file = chosen.file.substr(chosen.file.rfind('/') + 1);  // npos + 1 is 0: no folder
  std::string text = std::string(file) + ":";
  const auto comma = chosen.place.find(", in ");
  text += chosen.place.substr(0, comma);
  if (comma != std::string_view::npos)
    text += std::string(" in ") + std::string(chosen.place.substr(comma + 5));
  if (!chosen.code.empty()) text += ": " + std::string(chosen.code.substr(0, kShownCode));
  if (chosen.code.size() > kShownCode) text += "…";
  return text;
}

}  // namespace trireme::graph
