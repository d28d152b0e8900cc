#pragma once
// Tables with a line of names, as spreadsheets and catalogues write them: commas, fields in double quotes may
// hold commas and doubled quotes, empty lines and lines that begin with # are left out.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::spec {

class CsvTable {
 public:
  // Error(input) that names the file and the line: no line of names, a name twice, a line with another count
  // of fields, a quote that does not end.
  static CsvTable parse(std::string_view text, const std::string& name);
  static CsvTable read(const std::filesystem::path& path);

  const std::string& name() const { return name_; }
  size_t rows() const { return rows_.size(); }
  bool has(std::string_view column) const { return find(column).has_value(); }
  std::optional<size_t> find(std::string_view column) const;
  // Error(input) that lists the columns there are.
  size_t column(std::string_view column) const;
  const std::string& text(size_t row, size_t column) const { return rows_.at(row).at(column); }
  // Error(input) "file:line: column = text …" when the field is no finite number. An empty field has none.
  double number(size_t row, size_t column) const;
  std::optional<double> optional_number(size_t row, std::optional<size_t> column) const;
  int64_t whole_number(size_t row, size_t column) const;
  // "offers.csv:7": for errors about a row's meaning.
  std::string where(size_t row) const;

 private:
  std::string name_;
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<size_t> lines_;  // of each row in the file
};

}  // namespace trireme::spec
