#include "trireme/stats/table.h"

#include <charconv>
#include <cmath>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/files.h"

namespace trireme::stats {
namespace {

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t' || s.front() == '"')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t' || s.back() == '\r' || s.back() == '"'))
    s.remove_suffix(1);
  return s;
}

bool parse_number(std::string_view text, double& value) {
  text = trimmed(text);
  if (text.empty() || text == "NA") {
    value = std::nan("");
    return true;
  }
  if (text.front() == '+') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> fields;
  for (size_t at = 0;;) {
    const size_t comma = line.find(',', at);
    fields.push_back(line.substr(at, comma - at));
    if (comma == std::string_view::npos) return fields;
    at = comma + 1;
  }
}

template <typename T>
double element(const char* data, size_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return static_cast<double>(value);
}

struct NpyType {
  const char* code;
  size_t size;
  double (*read)(const char*, size_t);  // of the parts of a complex element one after the other
  bool complex = false;
};
constexpr NpyType kTypes[] = {
    {"<f8", 8, element<double>},  {"<f4", 4, element<float>},       {"<i8", 8, element<int64_t>},
    {"<i4", 4, element<int32_t>}, {"<u4", 4, element<uint32_t>},    {"|u1", 1, element<uint8_t>},
    {"|i1", 1, element<int8_t>},  {"<c8", 8, element<float>, true}, {"<c16", 16, element<double>, true}};

// What follows KEY: in the header's dictionary, between `open` and `close`, or up to a comma when they are
// spaces.
std::string header_field(const std::string& header, const std::string& key, char open, char close,
                         const std::string& name) {
  const auto wrong = [&]() -> std::string {
    fail(ErrorCode::input, name, ": no '", key, "' in the .npy header");
  };
  size_t at = header.find("'" + key + "':");
  if (at == std::string::npos) return wrong();
  at = header.find_first_not_of(' ', at + key.size() + 3);
  if (at == std::string::npos) return wrong();
  if (open != ' ' && header[at++] != open) return wrong();
  const size_t end = header.find(open == ' ' ? ',' : close, at);
  return end == std::string::npos ? wrong() : header.substr(at, end - at);
}

std::string npy_header(const char* type, size_t rows, size_t cols) {
  const std::string shape = cols == 1 ? cat("(", rows, ",)") : cat("(", rows, ", ", cols, ")");
  std::string header = cat("{'descr': '", type, "', 'fortran_order': False, 'shape': ", shape, ", }");
  header.append(63 - (10 + header.size()) % 64, ' ').push_back('\n');
  std::string out("\x93NUMPY\x01\x00", 8);
  out.push_back(static_cast<char>(header.size() & 0xff));
  out.push_back(static_cast<char>(header.size() >> 8));
  return out + header;
}

}  // namespace

Dense parse_csv(const std::string& text, const std::string& name) {
  Dense out;
  size_t line_number = 0;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    ++line_number;
    if (trimmed(line).empty()) continue;
    const auto fields = split(line);
    std::vector<double> values(fields.size());
    bool numeric = true;
    for (size_t j = 0; j < fields.size(); ++j)
      if (!parse_number(fields[j], values[j])) {
        if (out.rows > 0 || line_number > 1)
          fail(ErrorCode::input, name, ":", line_number, ": \"", std::string(trimmed(fields[j])),
               "\" is not a number");
        numeric = false;
      }
    if (out.cols == 0) out.cols = fields.size();
    if (fields.size() != out.cols)
      fail(ErrorCode::input, name, ":", line_number, ": ", fields.size(), " fields, the lines before have ",
           out.cols);
    if (!numeric) continue;  // the line of names
    out.values.insert(out.values.end(), values.begin(), values.end());
    ++out.rows;
  }
  if (out.rows == 0) fail(ErrorCode::input, name, ": no rows of numbers");
  return out;
}

Table parse_npy(const std::string& bytes, const std::string& name) {
  if (bytes.size() < 12 || bytes.compare(0, 6, "\x93NUMPY") != 0)
    fail(ErrorCode::input, name, ": not a .npy file");
  const bool wide = bytes[6] >= 2;
  size_t length = 0;
  for (size_t i = 0; i < (wide ? 4u : 2u); ++i)
    length |= size_t{static_cast<unsigned char>(bytes[8 + i])} << (8 * i);
  const size_t start = (wide ? 12 : 10) + length;
  if (bytes.size() < start) fail(ErrorCode::input, name, ": cut short in its header");
  const std::string header = bytes.substr(wide ? 12 : 10, length);
  const std::string code = header_field(header, "descr", '\'', '\'', name);
  const bool by_columns = trimmed(header_field(header, "fortran_order", ' ', ' ', name)) == "True";
  const std::string shape = header_field(header, "shape", '(', ')', name);
  std::vector<size_t> sizes;
  for (const std::string_view field : split(shape)) {
    double value = 0;
    if (!trimmed(field).empty() && parse_number(field, value)) sizes.push_back(static_cast<size_t>(value));
  }
  if (sizes.empty() || sizes.size() > 2)
    fail(ErrorCode::input, name, ": shape (", shape, "); give a vector or a matrix");
  if (sizes.size() == 1) sizes.push_back(1);
  for (const NpyType& type : kTypes) {
    if (code != type.code) continue;
    const size_t count = (bytes.size() - start) / type.size;
    if (sizes[1] != 0 && count / sizes[1] < sizes[0])
      fail(ErrorCode::input, name, ": cut short; copy the file again");
    const size_t rows = sizes[0], cols = sizes[1], parts = type.complex ? 2 : 1;
    Table out{Dense(rows, parts * cols), type.complex};
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < cols; ++j)
        for (size_t part = 0; part < parts; ++part)
          out.values(i, part * cols + j) =
              type.read(bytes.data() + start, parts * (by_columns ? j * rows + i : i * cols + j) + part);
    return out;
  }
  fail(ErrorCode::input, name, ": element type ", code,
       "; save it as float32, float64, complex64 or complex128 (little-endian)");
}

Table read_table(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  if (extension != ".npy" && extension != ".csv")
    fail(ErrorCode::usage, path.string(), ": tables are .npy or .csv, not \"", extension, "\"");
  const std::string content = read_file(path);
  if (extension == ".npy") return parse_npy(content, path.string());
  return {parse_csv(content, path.string()), false};
}

std::string to_npy(const Dense& table) {
  std::string out = npy_header("<f8", table.rows, table.cols);
  out.append(reinterpret_cast<const char*>(table.values.data()), table.values.size() * sizeof(double));
  return out;
}

std::string to_npy(const ComplexDense& m) {
  std::string out = npy_header("<c16", m.real.rows, m.real.cols);
  for (size_t k = 0; k < m.real.values.size(); ++k)
    for (const double part : {m.real.values[k], m.imaginary.values[k]})
      out.append(reinterpret_cast<const char*>(&part), sizeof part);
  return out;
}

}  // namespace trireme::stats
