#pragma once
// Numeric tables as users keep them: .npy (float32, float64, integers; both memory orders) and .csv.
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/stats/dense.h"

namespace trireme::stats {

// By extension. A 1-D .npy is one column. CSV: commas, an optional line of names, empty fields and "nan" are
// NaN. Throws Error(input) that names the file, and the line or header field that cannot be used.
Dense read_table(const std::filesystem::path& path);
Dense parse_csv(const std::string& text, const std::string& name);
Dense parse_npy(const std::string& bytes, const std::string& name);

// Row-major float64 in .npy version 1.0; a matrix of one column becomes 1-D.
std::string to_npy(const Dense& table);

}  // namespace trireme::stats
