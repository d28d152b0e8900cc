#include "trireme/spec/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/files.h"

namespace trireme::spec {
namespace {

std::string trimmed(std::string_view s) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!s.empty() && blank(s.front())) s.remove_prefix(1);
  while (!s.empty() && blank(s.back())) s.remove_suffix(1);
  return std::string(s);
}

// The fields of one record, whose text is taken off the front of `rest`; `line` moves on by the lines it
// spans.
std::vector<std::string> take_record(std::string_view& rest, size_t& line, const std::string& name) {
  const size_t first = line;
  std::vector<std::string> fields(1);
  bool quoted = false;
  size_t at = 0;
  for (; at < rest.size(); ++at) {
    const char c = rest[at];
    if (c == '\n') ++line;
    if (c == '\n' && !quoted) break;
    if (c == '"' && quoted && at + 1 < rest.size() && rest[at + 1] == '"') {
      fields.back() += '"';
      ++at;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.back() = trimmed(fields.back());
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  if (quoted) fail(ErrorCode::input, name, ":", first, ": a quote that does not end");
  rest.remove_prefix(std::min(at + 1, rest.size()));
  fields.back() = trimmed(fields.back());
  return fields;
}

std::string listed(const std::vector<std::string>& words) {
  std::string all;
  for (const auto& word : words) all += (all.empty() ? "" : ", ") + word;
  return all;
}

}  // namespace

CsvTable CsvTable::parse(std::string_view text, const std::string& name) {
  CsvTable table;
  table.name_ = name;
  size_t line = 1;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // the mark that spreadsheets put first
  while (!text.empty()) {
    const size_t first = line;
    const bool comment = text.front() == '#';
    auto fields = take_record(text, line, name);
    if (comment || (fields.size() == 1 && fields[0].empty())) continue;
    if (table.header_.empty()) {
      for (size_t i = 0; i < fields.size(); ++i)
        if (std::count(fields.begin(), fields.end(), fields[i]) > 1)
          fail(ErrorCode::input, name, ":", first, ": column ", fields[i], " is there twice");
      table.header_ = std::move(fields);
      continue;
    }
    if (fields.size() != table.header_.size())
      fail(ErrorCode::input, name, ":", first, ": ", fields.size(), " fields, but the line of names has ",
           table.header_.size());
    table.rows_.push_back(std::move(fields));
    table.lines_.push_back(first);
  }
  if (table.header_.empty()) fail(ErrorCode::input, name, ": empty; its first line must name the columns");
  return table;
}

CsvTable CsvTable::read(const std::filesystem::path& path) {
  return parse(read_file(path), path.string());
}

std::optional<size_t> CsvTable::find(std::string_view column) const {
  const auto found = std::find(header_.begin(), header_.end(), column);
  if (found == header_.end()) return std::nullopt;
  return static_cast<size_t>(found - header_.begin());
}

size_t CsvTable::column(std::string_view column) const {
  if (const auto found = find(column)) return *found;
  fail(ErrorCode::input, name_, ": no column ", std::string(column), "; there are ", listed(header_));
}

double CsvTable::number(size_t row, size_t column) const {
  const auto& field = text(row, column);
  double value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size() || !std::isfinite(value))
    fail(ErrorCode::input, where(row), ": ", header_.at(column), " = ", field.empty() ? "(nothing)" : field,
         ": must be a finite number");
  return value;
}

std::optional<double> CsvTable::optional_number(size_t row, std::optional<size_t> column) const {
  if (!column || text(row, *column).empty()) return std::nullopt;
  return number(row, *column);
}

int64_t CsvTable::whole_number(size_t row, size_t column) const {
  const double value = number(row, column);
  if (value != std::floor(value) || std::abs(value) > 9e15)
    fail(ErrorCode::input, where(row), ": ", header_.at(column), " = ", text(row, column),
         ": must be a whole number");
  return static_cast<int64_t>(value);
}

std::string CsvTable::where(size_t row) const {
  return cat(name_, ":", lines_.at(row));
}

}  // namespace trireme::spec
