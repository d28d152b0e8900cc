#pragma once
// Numeric tables as users keep them: .npy (float32, float64, complex64, complex128, integers; both memory
// orders) and .csv.
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/stats/dense.h"

namespace trireme::stats {

// Complex: 2 d columns, the real parts of d columns and then their imaginary parts.
struct Table {
  Dense values;
  bool complex = false;
  bool operator==(const Table&) const = default;
};

// By extension. A 1-D .npy is one column. CSV: commas, an optional line of names, empty fields and "nan" are
// NaN. Throws Error(input) that names the file, and the line or header field that cannot be used.
Table read_table(const std::filesystem::path& path);
Dense parse_csv(const std::string& text, const std::string& name);
Table parse_npy(const std::string& bytes, const std::string& name);

// Row-major float64 in .npy version 1.0; a matrix of one column becomes 1-D.
std::string to_npy(const Dense& table);
std::string to_npy(const ComplexDense& matrix);  // complex128

}  // namespace trireme::stats
