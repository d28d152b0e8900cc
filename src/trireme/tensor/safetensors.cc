#include "trireme/tensor/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/json_problem.h"
#include "trireme/spec/json_guard.h"

namespace trireme::tensor {
namespace {

using nlohmann::json;
static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

constexpr uint64_t kMaxHeader = 100'000'000;
constexpr size_t kLengthBytes = 8;
constexpr std::string_view kMetadata = "__metadata__";

// The parser keeps the last of two equal keys; a weight file with two tensors of one name is broken.
json parse_header(std::string_view text) {
  spec::check_json_depth(text);
  std::set<std::string> names;
  return json::parse(text, [&names](int depth, json::parse_event_t event, json& parsed) {
    if (depth == 1 && event == json::parse_event_t::key && !names.insert(parsed.get<std::string>()).second)
      fail(ErrorCode::input, "tensor '", parsed.get<std::string>(), "' occurs twice");
    return true;
  });
}

int64_t extent_of(const json& value) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t{1} << 62)
    fail(ErrorCode::input, "shape or offset '", value.dump(-1, ' ', true).substr(0, 80), "' is not a size");
  return value.get<int64_t>();
}

struct Placed {
  std::string name;
  uint64_t begin, end;
};

SafetensorsEntry read_entry(const json& value, std::span<const std::byte> data, Placed& placed) {
  SafetensorsEntry entry;
  entry.dtype = spec::dtype_from_safetensors(value.at("dtype").get<std::string>());
  for (const auto& extent : value.at("shape")) entry.shape.push_back(extent_of(extent));
  const auto& offsets = value.at("data_offsets");
  if (offsets.size() != 2) fail(ErrorCode::input, "data_offsets needs two numbers");
  placed.begin = static_cast<uint64_t>(extent_of(offsets[0]));
  placed.end = static_cast<uint64_t>(extent_of(offsets[1]));
  if (placed.begin > placed.end || placed.end > data.size())
    fail(ErrorCode::input, "data offsets ", placed.begin, " to ", placed.end, " lie outside the ",
         data.size(), " bytes of data: the file is truncated or broken");
  const auto elements = static_cast<uint64_t>(spec::count(entry.shape));
  const uint64_t bytes = placed.end - placed.begin;
  if (bytes % spec::size_of(entry.dtype) != 0 || bytes / spec::size_of(entry.dtype) != elements)
    fail(ErrorCode::input, bytes, " bytes of data do not match shape ", spec::to_text(entry.shape), " of ",
         name(entry.dtype));
  entry.bytes = data.subspan(placed.begin, bytes);
  return entry;
}

// The data must be covered once and without gaps, as the format demands.
void check_tiling(std::vector<Placed> placed, uint64_t size) {
  std::sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t end = 0;
  for (const auto& p : placed) {
    if (p.begin < end) fail(ErrorCode::input, "tensor '", p.name, "' overlaps another one");
    if (p.begin > end) fail(ErrorCode::input, p.begin - end, " unused bytes before tensor '", p.name, "'");
    end = p.end;
  }
  if (end != size) fail(ErrorCode::input, size - end, " unused bytes after the last tensor");
}

std::span<const std::byte> header_of(std::span<const std::byte> bytes) {
  if (bytes.empty()) fail(ErrorCode::input, "the file is empty");
  uint64_t length = 0;
  if (bytes.size() < kLengthBytes)
    fail(ErrorCode::input, "only ", bytes.size(), " bytes, not a safetensors file");
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kMaxHeader) fail(ErrorCode::input, "header of ", length, " bytes, not a safetensors file");
  if (length > bytes.size() - kLengthBytes)
    fail(ErrorCode::input, "header of ", length, " bytes in a file of ", bytes.size(),
         ": truncated, or not a safetensors file");
  return bytes.subspan(kLengthBytes, length);
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  try {
    const auto header = header_of(file_.bytes());
    const auto data = file_.bytes().subspan(kLengthBytes + header.size());
    const json parsed = parse_header({reinterpret_cast<const char*>(header.data()), header.size()});
    if (!parsed.is_object()) fail(ErrorCode::input, "the header is not a JSON object");
    std::vector<Placed> placed;
    for (const auto& [name, value] : parsed.items()) {
      if (name == kMetadata) {
        metadata_ = value.get<std::map<std::string, std::string>>();
        continue;
      }
      try {
        entries_[name] = read_entry(value, data, placed.emplace_back(Placed{name, 0, 0}));
      } catch (const Error& e) {
        fail(ErrorCode::input, "tensor '", name, "': ", e.what());
      }
    }
    check_tiling(std::move(placed), data.size());
  } catch (const json::exception& e) {
    fail(ErrorCode::input, path.string(), ": broken header: ", json_problem(e));
  } catch (const Error& e) {
    fail(e.code(), path.string(), ": ", e.what());
  }
}

void write_safetensors(const std::filesystem::path& path,
                       const std::map<std::string, SafetensorsEntry>& entries,
                       const std::map<std::string, std::string>& metadata) {
  // Wide elements first: every tensor is then aligned to its element.
  std::vector<const std::pair<const std::string, SafetensorsEntry>*> order;
  for (const auto& entry : entries) order.push_back(&entry);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return spec::size_of(a->second.dtype) > spec::size_of(b->second.dtype);
  });

  json header = json::object();
  if (!metadata.empty()) header[std::string(kMetadata)] = metadata;
  uint64_t offset = 0;
  for (const auto* named : order) {
    const auto& [name, entry] = *named;
    TRIREME_CHECK(
        entry.bytes.size() == static_cast<size_t>(spec::count(entry.shape)) * spec::size_of(entry.dtype),
        name);
    header[name] = {{"dtype", spec::safetensors_name(entry.dtype)},
                    {"shape", entry.shape},
                    {"data_offsets", {offset, offset + entry.bytes.size()}}};
    offset += entry.bytes.size();
  }
  std::string text = header.dump();
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');

  FileWriter file(path);
  const uint64_t length = text.size();
  file.append(std::as_bytes(std::span(&length, 1)));
  file.append(std::as_bytes(std::span(text)));
  for (const auto* named : order) file.append(named->second.bytes);
  file.commit();
}

}  // namespace trireme::tensor
