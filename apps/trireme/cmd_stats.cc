// `trireme stats`: estimates from dithered bits on the command line. Prints one JSON object; matrices go to
// --out (.npy) or, without it, into the JSON.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "commands.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/stats/completion.h"
#include "trireme/stats/covariance.h"
#include "trireme/stats/mean.h"
#include "trireme/stats/quantiser.h"
#include "trireme/stats/regression.h"
#include "trireme/stats/table.h"

namespace trireme::app {
namespace {

using namespace trireme::stats;
using nlohmann::json;

constexpr size_t kBlockRows = 65536;

struct Arguments {
  std::vector<std::string> inputs;
  std::string gamma = "light", method = "triangular", missing = "error", out, bits_out, threshold = "none",
              psd = "none";
  std::string y, alpha = "rule", shape, mask;
  double moment_order = 0, eta = 0, multiple = -1, corrupted = 0, radius = 0, truncation = 0, bound = 0,
         step = 0;
  unsigned bits = 2, folds = 5, threads = 0;
  uint64_t seed = 0;
  uint32_t stream = 0;
  bool centred = false, quantise_x = false, errors = false, complex = false, toeplitz = false;
};

Matrix view(const Dense& table) {
  return row_major(table.values.data(), table.rows, table.cols);
}

double number(const std::string& text, const char* option) {
  size_t used = 0;
  double value = 0;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used != text.size() || text.empty())
    fail(ErrorCode::usage, option, " ", text, " is neither a number nor a known word");
  return value;
}

// The range and centre of each column by --gamma and --moment-order.
void set_ranges(const Arguments& a, const Dense& table, Problem problem, CodeBook& book) {
  if (a.gamma == "pilot") {
    const PilotBook pilot = pilot_book(view(table), table.rows, a.corrupted);
    book.range = pilot.book.range;
    book.centre = pilot.book.centre;
    return;
  }
  const double power = a.moment_order > 0 ? a.moment_order : 2;
  for (size_t j = 0; j < table.cols; ++j) {
    double seen = 0, moment = 0, largest = 0;
    for (size_t i = 0; i < table.rows; ++i) {
      const double size = std::abs(table(i, j));
      if (std::isnan(size)) continue;
      seen += 1;
      moment += std::pow(size, power);
      largest = std::max(largest, size);
    }
    moment /= std::max(1.0, seen);
    if (a.gamma == "max")
      book.range.push_back(largest);
    else if (a.gamma != "light")
      book.range.push_back(number(a.gamma, "--gamma"));
    else if (a.moment_order > 0)
      book.range.push_back(moment_range(problem, moment, a.moment_order, table.rows, table.cols));
    else
      book.range.push_back(light_tail_range(std::sqrt(moment), table.rows));
  }
  if (a.eta > 0) book.truncation.assign(table.cols, a.eta);
  if (book.scheme == Scheme::triangular && a.step > 0) {
    book.step = a.step;
    book.bits = bits_for(book.scheme, *std::max_element(book.range.begin(), book.range.end()), a.step);
  }
}

Missing missing_of(const std::string& text) {
  return text == "mask" ? Missing::mask : Missing::error;
}

// A table of real numbers.
Dense read_real(const std::string& path) {
  Table table = read_table(path);
  if (table.complex)
    fail(ErrorCode::input, path, ": complex numbers; only stats mean and stats covariance take them");
  return std::move(table.values);
}

std::string counted(size_t n, const char* what) {
  return cat(n, " ", what, n == 1 ? "" : "s");
}

// The table of `mean` and `covariance`, and in book.complex whether its columns are real and imaginary parts.
Dense read_samples(const Arguments& a, CodeBook& book) {
  Table table = read_table(a.inputs[0]);
  book.complex = table.complex || a.complex;
  if (book.complex && table.values.cols % 2)
    fail(ErrorCode::input, a.inputs[0], ": ", counted(table.values.cols, "column"),
         "; --complex takes the real parts of all columns, then their imaginary parts");
  if (table.values.rows < 2)
    fail(ErrorCode::input, a.inputs[0], ": ", counted(table.values.rows, "row"),
         "; statistics need at least 2");
  return std::move(table.values);
}

// The first column whose values are all the same.
std::optional<size_t> constant_column(const Dense& table) {
  for (size_t j = 0; j < table.cols; ++j) {
    size_t i = 1;
    while (i < table.rows && table(i, j) == table(0, j)) ++i;
    if (i >= table.rows) return j;
  }
  return std::nullopt;
}

// Calls use(block) for the bits of all inputs: bits files as they are, one table quantised in blocks of rows.
template <typename Start, typename Use>
void for_bits(const Arguments& a, Problem problem, CodeBook book, Start start, Use use) {
  const bool from_bits = std::filesystem::path(a.inputs[0]).extension() == ".bits";
  if (!from_bits && a.inputs.size() > 1)
    fail(ErrorCode::usage, "several inputs are pooled only when all are .bits files");
  if (from_bits && !a.bits_out.empty()) fail(ErrorCode::usage, "--bits-out needs a table as input");
  if (from_bits) {
    bool begun = false;
    for (const std::string& input : a.inputs) {
      BitsReader reader(input);
      if (!begun) start(reader.book());
      begun = true;
      for (BitMatrix block; reader.next(block);) use(block);
    }
    return;
  }
  const Dense table = read_samples(a, book);
  if (const auto j = constant_column(table); j && problem == Problem::covariance)
    log::warning(cat(a.inputs[0], ": column ", *j,
                     " is constant: its variance is 0 and what is estimated of it is noise"));
  set_ranges(a, table, problem, book);
  start(book);
  std::unique_ptr<BitsWriter> writer;
  if (!a.bits_out.empty()) writer = std::make_unique<BitsWriter>(a.bits_out, book);
  // The pilot rows of `mean` have been looked at and are not used again.
  const size_t skip = problem == Problem::mean && a.gamma == "pilot"
                          ? pilot_rule(table.rows, table.cols, a.corrupted).count
                          : 0;
  if (skip >= table.rows) fail(ErrorCode::input, a.inputs[0], ": too few rows for a pilot; give --gamma");
  for (size_t first = skip; first < table.rows; first += kBlockRows) {
    const size_t count = std::min(kBlockRows, table.rows - first);
    const BitMatrix bits = quantise(row_major(&table.values[first * table.cols], count, table.cols), book,
                                    {a.seed, a.stream, first}, missing_of(a.missing), a.threads);
    if (writer) writer->append(bits);
    use(bits);
  }
  if (writer) writer->close();
}

json matrix_json(const Dense& m) {
  json out = json::array();
  for (size_t i = 0; i < m.rows; ++i)
    out.push_back(std::vector<double>(m.values.begin() + static_cast<std::ptrdiff_t>(i * m.cols),
                                      m.values.begin() + static_cast<std::ptrdiff_t>((i + 1) * m.cols)));
  return out;
}

// Prints the answer, with the main result in it or in --out.
int finish(const Arguments& a, json answer, const char* key, const Dense& result) {
  if (a.out.empty()) {
    answer[key] = result.cols == 1 ? json(result.values) : matrix_json(result);
  } else {
    write_file(a.out, to_npy(result));
    answer["out"] = a.out;
  }
  std::printf("%s\n", answer.dump().c_str());
  return 0;
}
// The same with the imaginary parts under KEY_imaginary, or complex128 in --out.
int finish(const Arguments& a, json answer, const std::string& key, const ComplexDense& result) {
  if (!a.out.empty()) {
    write_file(a.out, to_npy(result));
    answer["out"] = a.out;
    std::printf("%s\n", answer.dump().c_str());
    return 0;
  }
  const bool vector = result.imaginary.cols == 1;
  answer[key + "_imaginary"] = vector ? json(result.imaginary.values) : matrix_json(result.imaginary);
  return finish(a, std::move(answer), key.c_str(), result.real);
}

Dense column(std::vector<double> values) {
  Dense out;
  out.rows = values.size();
  out.cols = 1;
  out.values = std::move(values);
  return out;
}

json describe(const CodeBook& book) {
  return {
      {"scheme", name(book.scheme)}, {"bits", book.planes()}, {"gamma", book.range}, {"centre", book.centre}};
}

int run_mean(const Arguments& a) {
  CodeBook book;
  book.scheme = Scheme::one_bit;
  book.bits = 1;
  std::unique_ptr<MeanCounts> counts;
  for_bits(
      a, Problem::mean, book, [&](const CodeBook& b) { counts = std::make_unique<MeanCounts>(b); },
      [&](const BitMatrix& bits) { counts->add(bits); });
  json answer = describe(counts->book());
  answer["n"] = counts->rows(0);
  answer["standard_error"] = counts->standard_errors();
  if (a.eta > 0) answer["privacy_epsilon"] = privacy_epsilon(counts->book(), 0);
  const std::vector<double> mean = counts->mean();
  if (!counts->book().complex) return finish(a, std::move(answer), "mean", column(mean));
  const auto half = mean.begin() + static_cast<std::ptrdiff_t>(mean.size() / 2);
  return finish(a, std::move(answer), "mean",
                ComplexDense{column({mean.begin(), half}), column({half, mean.end()})});
}

CodeBook book_for(const std::string& method, unsigned bits) {
  CodeBook book;
  if (method != "triangular" && method != "all_pairs" && method != "raw")
    fail(ErrorCode::usage, "--method ", method, ": one of triangular, all_pairs, raw",
         method == "one_bit" ? "; one_bit needs known variances: trireme.stats has it in Python" : "");
  book.scheme = method == "triangular" ? Scheme::triangular : Scheme::two_dither;
  book.bits = method == "triangular" ? bits : 1;
  return book;
}

// The counts of a covariance, in folds where a threshold is to be cross-validated.
struct FoldedCounts {
  std::vector<CovarianceCounts> parts;

  FoldedCounts(const Arguments& a, const CodeBook& book, Pairing pairing) {
    const bool choose = a.threshold != "none" && a.multiple < 0;
    parts.assign(choose ? std::max(2u, a.folds) : 1, CovarianceCounts(book, pairing, a.errors));
  }
  CovarianceCounts whole() const {
    CovarianceCounts sum = parts[0];
    for (size_t f = 1; f < parts.size(); ++f) sum.merge(parts[f]);
    return sum;
  }
  double multiple(const Arguments& a) const {
    if (a.multiple >= 0) return a.multiple;
    std::vector<double> candidates;
    for (int c = 0; c <= 30; ++c) candidates.push_back(0.1 * c);
    return choose_threshold(parts, shrink(a), candidates).multiple;
  }
  static Shrink shrink(const Arguments& a) { return a.threshold == "soft" ? Shrink::soft : Shrink::hard; }
};

Dense definite(const Arguments& a, const Dense& estimate) {
  if (a.psd == "project") return project_psd(estimate);
  if (a.psd != "shrink") return estimate;
  double top = 0;
  for (size_t j = 0; j < estimate.rows; ++j) top = std::max(top, estimate(j, j));
  return shrink_to_definite(estimate, 1e-6 * top);
}

void multiply_mask(const Arguments& a, Dense& estimate) {
  if (a.mask.empty()) return;
  const Dense mask = read_real(a.mask);
  if (mask.rows != estimate.rows || mask.cols != estimate.cols)
    fail(ErrorCode::input, a.mask, ": ", mask.rows, " x ", mask.cols, "; the covariance is ", estimate.rows,
         " x ", estimate.cols);
  for (size_t k = 0; k < mask.values.size(); ++k) estimate.values[k] *= mask.values[k];
}

void subtract_means(Dense& table) {
  for (size_t j = 0; j < table.cols; ++j) {
    double sum = 0;
    for (size_t i = 0; i < table.rows; ++i) sum += table(i, j);
    for (size_t i = 0; i < table.rows; ++i) table(i, j) -= sum / static_cast<double>(table.rows);
  }
}

// The baselines, from the full table: --method full_precision and arcsine.
int run_baseline(const Arguments& a) {
  CodeBook book;
  Dense table = read_samples(a, book);
  if (book.complex || a.inputs.size() != 1 || a.missing != "error" || !a.bits_out.empty() ||
      a.threshold != "none")
    fail(ErrorCode::usage, "--method ", a.method,
         " is a baseline of one real table, without bits or a threshold");
  for (size_t k = 0; k < table.values.size(); ++k)
    if (!std::isfinite(table.values[k]))
      fail(ErrorCode::input, a.inputs[0], ": row ", k / table.cols, ", column ", k % table.cols,
           " is not a finite number");
  if (!a.centred) subtract_means(table);
  const Dense estimate = a.method == "arcsine" ? arcsine_correlation(view(table), a.threads)
                                               : full_precision_second_moment(view(table), a.threads);
  json answer = {
      {"method", a.method}, {"n", table.rows}, {"smallest_eigenvalue", smallest_eigenvalue(estimate)}};
  return finish(a, std::move(answer), "covariance", definite(a, estimate));
}

int run_covariance(const Arguments& a) {
  if (a.method == "arcsine" || a.method == "full_precision") return run_baseline(a);
  const Pairing pairing = a.method == "raw" ? Pairing::raw : Pairing::all_pairs;
  std::unique_ptr<FoldedCounts> folded;
  for_bits(
      a, Problem::covariance, book_for(a.method, a.bits),
      [&](const CodeBook& b) { folded = std::make_unique<FoldedCounts>(a, b, pairing); },
      [&](const BitMatrix& bits) { add_in_folds(bits, folded->parts, a.threads); });
  const CovarianceCounts counts = folded->whole();
  if (counts.rows() < 2)
    fail(ErrorCode::input, a.inputs[0], ": ", counted(counts.rows(), "row"), "; statistics need at least 2");
  json answer = describe(counts.book());
  answer["n"] = counts.rows();
  Dense estimate = a.centred ? counts.second_moment() : counts.covariance();
  if (a.threshold != "none") {
    const double multiple = folded->multiple(a);
    threshold(estimate, FoldedCounts::shrink(a), multiple, counts.book().range, counts.rows());
    answer["threshold_multiple"] = multiple;
  }
  if (a.errors) answer["standard_errors"] = matrix_json(counts.standard_errors());
  if (counts.book().complex) {
    if (a.psd == "shrink") fail(ErrorCode::usage, "--psd shrink is for real data; take --psd project");
    ComplexDense folded_estimate = fold_complex(estimate);
    multiply_mask(a, folded_estimate.real);
    multiply_mask(a, folded_estimate.imaginary);
    if (a.toeplitz) folded_estimate = toeplitz(folded_estimate);
    const Dense embedded = embed(folded_estimate);
    answer["smallest_eigenvalue"] = smallest_eigenvalue(embedded);
    return finish(a, std::move(answer), "covariance", extract(definite(a, embedded)));
  }
  multiply_mask(a, estimate);
  if (a.toeplitz) estimate = toeplitz(estimate);
  answer["smallest_eigenvalue"] = smallest_eigenvalue(estimate);
  return finish(a, std::move(answer), "covariance", definite(a, estimate));
}

int run_regression(const Arguments& a) {
  if (a.inputs.size() != 1) fail(ErrorCode::usage, "regression takes one table X and --y");
  Dense x = read_real(a.inputs[0]), y = read_real(a.y);
  if (y.cols != 1) fail(ErrorCode::input, a.y, ": ", y.cols, " columns; the responses are one");
  if (x.rows != y.rows) fail(ErrorCode::input, a.inputs[0], " has ", x.rows, " rows, ", a.y, " has ", y.rows);
  if (const auto j = constant_column(x); j && x.rows > 1)
    fail(ErrorCode::input, a.inputs[0], ": column ", *j,
         " is constant: centred data has nothing in it; drop the column");
  if (!a.centred) subtract_means(x), subtract_means(y);
  CodeBook y_book, x_book = book_for(a.method, 2);
  y_book.scheme = Scheme::one_bit;
  y_book.bits = 1;
  set_ranges(a, y, Problem::regression, y_book);
  const BitMatrix y_bits = quantise(view(y), y_book, {a.seed, a.stream + 1});
  const double rate = std::sqrt(std::log(std::max<double>(2, x.cols)) / static_cast<double>(x.rows));
  LassoOptions options{.radius = a.radius > 0 ? a.radius : std::numeric_limits<double>::infinity(),
                       .threads = a.threads};
  const std::vector<double> multiples{0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.4, 2.0};
  double unit = y_book.range[0] * rate;
  LassoFit fit;
  std::vector<double> errors;
  if (a.quantise_x) {
    const Pairing pairing = a.method == "raw" ? Pairing::raw : Pairing::all_pairs;
    set_ranges(a, x, Problem::regression_quantised, x_book);
    const BitMatrix x_bits = quantise(view(x), x_book, {a.seed, a.stream}, Missing::error, a.threads);
    RegressionCounts counts(x_book, y_book, pairing);
    counts.add(x_bits, y_bits, a.threads);
    unit *= std::accumulate(x_book.range.begin(), x_book.range.end(), 0.0) / static_cast<double>(x.cols);
    const double rule = a.method == "triangular" ? 0.35 : a.method == "raw" ? 0.7 : 0.5;
    options.lambda =
        a.alpha == "rule" ? rule * unit
        : a.alpha == "cv"
            ? unit * choose_lambda_quantised(x_bits, y_bits, pairing, multiples, a.folds, options).multiple
            : number(a.alpha, "--alpha");
    fit = lasso_gram(counts.gram(), counts.cross(), options);
    errors = lasso_errors_quantised(x_bits, y_bits, fit.coefficients);
  } else {
    const double truncation = a.truncation > 0 ? a.truncation : std::numeric_limits<double>::infinity();
    double square = 0;
    for (double v : x.values) square += v * v / static_cast<double>(x.values.size());
    options.radius = std::numeric_limits<double>::infinity();
    options.lambda =
        a.alpha == "rule" ? unit * std::sqrt(square)
        : a.alpha == "cv"
            ? unit * choose_lambda_full(view(x), y_bits, truncation, multiples, a.folds, options).multiple
            : number(a.alpha, "--alpha");
    fit = lasso_full(view(x), y_bits, truncation, options);
    errors = lasso_errors_full(view(x), y_bits, truncation, fit.coefficients);
  }
  if (!fit.warning.empty()) log::warning(fit.warning);
  json answer = {{"n", x.rows},
                 {"alpha", options.lambda},
                 {"gamma", y_book.range[0]},
                 {"path", name(fit.path)},
                 {"converged", fit.converged},
                 {"iterations", fit.iterations},
                 {"standard_errors", errors}};
  if (std::isfinite(fit.smallest_eigenvalue)) answer["smallest_eigenvalue"] = fit.smallest_eigenvalue;
  return finish(a, std::move(answer), "coefficients", column(fit.coefficients));
}

int run_complete(const Arguments& a) {
  if (a.inputs.size() != 1) fail(ErrorCode::usage, "complete takes one table of observations");
  const Dense table = read_real(a.inputs[0]);
  if (table.cols != 3)
    fail(ErrorCode::input, a.inputs[0], ": ", table.cols, " columns; give row, column, value (from 0)");
  Entries entries;
  Dense values(table.rows, 1);
  int64_t rows = 0, cols = 0;
  double largest = 0;
  for (size_t k = 0; k < table.rows; ++k) {
    for (size_t c = 0; c < 2; ++c)
      if (table(k, c) != std::floor(table(k, c)) || table(k, c) < 0)
        fail(ErrorCode::input, a.inputs[0], ": row ", k, " has index ", table(k, c),
             "; indices are whole numbers from 0");
    entries.rows.push_back(static_cast<int64_t>(table(k, 0)));
    entries.cols.push_back(static_cast<int64_t>(table(k, 1)));
    rows = std::max(rows, entries.rows.back() + 1);
    cols = std::max(cols, entries.cols.back() + 1);
    values(k, 0) = table(k, 2);
    largest = std::max(largest, std::abs(table(k, 2)));
  }
  if (!a.shape.empty() && std::sscanf(a.shape.c_str(), "%ldx%ld", &rows, &cols) != 2)
    fail(ErrorCode::usage, "--shape ", a.shape, ": give ROWSxCOLUMNS, as in 40x60");
  CodeBook book;
  book.scheme = Scheme::one_bit;
  book.bits = 1;
  set_ranges(a, values, Problem::completion, book);
  const BitMatrix bits = quantise(view(values), book, {a.seed, a.stream}, Missing::error, a.threads);
  const size_t d1 = static_cast<size_t>(rows), d2 = static_cast<size_t>(cols);
  CompletionCounts counts(d1, d2, book);
  counts.add(entries, bits);
  CompletionOptions options{.bound = a.bound > 0 ? a.bound : largest, .threads = a.threads};
  const double unit = completion_lambda(book.range[0], d1, d2, table.rows);
  options.lambda = a.alpha == "rule" ? unit
                   : a.alpha == "cv"
                       ? unit * choose_completion_lambda(entries, bits, d1, d2, {0.2, 0.3, 0.45, 0.7, 1, 1.5},
                                                         a.folds, options)
                                    .multiple
                       : number(a.alpha, "--alpha");
  const CompletionFit fit = complete(counts, options);
  if (!fit.warning.empty()) log::warning(fit.warning);
  json answer = {{"n", table.rows},
                 {"alpha", options.lambda},
                 {"gamma", book.range[0]},
                 {"bound", options.bound},
                 {"rank", fit.rank},
                 {"converged", fit.converged},
                 {"iterations", fit.iterations}};
  return finish(a, std::move(answer), "matrix", fit.matrix);
}

void add_common(CLI::App& app, Arguments& a, const char* input) {
  app.add_option("input", a.inputs, input)->required()->type_name("FILE");
  app.add_option("--gamma", a.gamma, "dither range: a number, light (rms sqrt(log n)), max, or pilot")
      ->capture_default_str();
  app.add_option("--moment-order", a.moment_order, "heavy tails: range from this moment of each column");
  app.add_option("--seed", a.seed, "of the dithers")->capture_default_str();
  app.add_option("--stream", a.stream, "device number, so that devices of one seed draw other dithers")
      ->capture_default_str();
  app.add_option("--threads", a.threads, "0: one per processor")->capture_default_str();
  app.add_option("-o,--out", a.out, "write the result as .npy instead of printing it")->type_name("FILE");
}

CLI::App& subcommand(CLI::App& app, const char* name, const char* help, const char* example) {
  CLI::App* sub = app.add_subcommand(name, help);
  sub->footer(cat("Example:\n  trireme stats ", name, " ", example));
  return *sub;
}

}  // namespace

std::function<int()> setup_stats(CLI::App& app) {
  auto a = std::make_shared<Arguments>();
  auto chosen = std::make_shared<std::function<int(const Arguments&)>>();
  app.require_subcommand(1);
  CLI::App& mean = subcommand(app, "mean", "column means from one bit a value", "samples.csv --gamma pilot");
  add_common(mean, *a, "table (.npy, .csv), or .bits files to pool");
  CLI::App& covariance = subcommand(app, "covariance", "covariance of the columns from 2 bits a value",
                                    "samples.npy --threshold hard -o covariance.npy");
  add_common(covariance, *a, "table (.npy, .csv), or .bits files to pool");
  for (CLI::App* sub : {&mean, &covariance}) {
    sub->add_option("--eta", a->eta, "truncation below gamma, for privacy");
    sub->add_option("--missing", a->missing, "what NaN means")
        ->check(CLI::IsMember({"error", "mask"}))
        ->capture_default_str();
    sub->add_option("--bits-out", a->bits_out, "also write the bits")->type_name("FILE");
    sub->add_flag("--complex", a->complex,
                  "columns: real parts, then imaginary ones (a complex .npy needs no flag)");
  }
  mean.add_option("--corrupted", a->corrupted, "share of rows that may hold anything (pilot rule)");
  covariance
      .add_option("--method", a->method, "triangular, all_pairs, raw; baselines: full_precision, arcsine")
      ->capture_default_str();
  covariance.add_option("--bits", a->bits, "bits a value of the triangular method")->capture_default_str();
  covariance.add_option("--step", a->step, "its cell width; the bits then follow from the range");
  covariance.add_option("--threshold", a->threshold)
      ->check(CLI::IsMember({"none", "hard", "soft"}))
      ->capture_default_str();
  covariance.add_option("--multiple", a->multiple, "of gamma^2 sqrt(log d / n); by default cross-validated");
  covariance.add_option("--folds", a->folds, "of the cross-validation")->capture_default_str();
  covariance.add_option("--mask", a->mask, "matrix that multiplies the estimate (banding, tapering)")
      ->type_name("FILE");
  covariance.add_flag("--toeplitz", a->toeplitz,
                      "average along the diagonals (stationary series, line arrays)");
  covariance.add_option("--psd", a->psd)
      ->check(CLI::IsMember({"none", "project", "shrink"}))
      ->capture_default_str();
  covariance.add_flag("--centred", a->centred, "the columns have mean 0");
  covariance.add_flag("--errors", a->errors, "standard errors of the entries");
  CLI::App& regression = subcommand(app, "regression", "sparse regression from one bit a response",
                                    "x.npy --y y.npy --quantize-x --radius 3");
  add_common(regression, *a, "covariates (.npy, .csv)");
  regression.add_option("--y", a->y, "responses (.npy, .csv)")->required()->type_name("FILE");
  regression.add_flag("--quantize-x", a->quantise_x, "2 bits a covariate too");
  regression.add_option("--method", a->method, "of the covariates: triangular, all_pairs or raw")
      ->capture_default_str();
  regression.add_option("--radius", a->radius, "l1 ball, at least the coefficients' l1 norm");
  regression.add_option("--truncation", a->truncation, "clip full-precision covariates (heavy tails)");
  regression.add_flag("--centred", a->centred, "leave the columns' means in");
  CLI::App& complete = subcommand(app, "complete", "low-rank matrix from one bit an observed entry",
                                  "ratings.csv --shape 40x60 --bound 1 -o matrix.npy");
  add_common(complete, *a, "observations (.npy, .csv): row, column, value");
  complete.add_option("--shape", a->shape, "ROWSxCOLUMNS; by default what the indices reach");
  complete.add_option("--bound", a->bound, "largest absolute entry; by default the largest observed value");
  for (CLI::App* sub : {&regression, &complete}) {
    sub->add_option("--alpha", a->alpha, "penalty: a number, rule, or cv")->capture_default_str();
    sub->add_option("--folds", a->folds, "of the cross-validation")->capture_default_str();
  }
  const std::pair<CLI::App*, int (*)(const Arguments&)> actions[] = {{&mean, run_mean},
                                                                     {&covariance, run_covariance},
                                                                     {&regression, run_regression},
                                                                     {&complete, run_complete}};
  for (const auto& [sub, action] : actions) sub->callback([chosen, run = action] { *chosen = run; });
  app.footer("Example:\n  trireme stats covariance samples.npy --threshold hard -o covariance.npy");
  return [a, chosen] { return (*chosen)(*a); };
}

}  // namespace trireme::app
