// trireme.stats._stats: arrays in without a copy, results out by a move. The estimators are
// python/trireme/stats/*.py.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "trireme/base/error.h"
#include "trireme/stats/bits.h"
#include "trireme/stats/completion.h"
#include "trireme/stats/covariance.h"
#include "trireme/stats/mean.h"
#include "trireme/stats/quantiser.h"
#include "trireme/stats/regression.h"

namespace py = pybind11;
using namespace trireme;
using namespace trireme::stats;

namespace {

template <typename T>
MatrixView<T> view_of(const py::array& a) {
  const auto step = static_cast<py::ssize_t>(sizeof(T));
  if (a.strides(0) % step || a.strides(1) % step)
    throw py::value_error("the array's strides are not whole elements; copy it");
  return {static_cast<const T*>(a.data()), static_cast<size_t>(a.shape(0)), static_cast<size_t>(a.shape(1)),
          a.strides(0) / step, a.strides(1) / step};
}

Matrix matrix_of(const py::array& a) {
  if (a.ndim() != 2) throw py::value_error(cat("expected a 2-D array, not ", a.ndim(), "-D"));
  if (a.dtype().equal(py::dtype::of<float>())) return view_of<float>(a);
  if (a.dtype().equal(py::dtype::of<double>())) return view_of<double>(a);
  throw py::type_error("expected an array of float32 or float64");
}

// The array owns the vector.
template <typename T>
py::array_t<T> array_of(std::vector<T> values, std::vector<py::ssize_t> shape = {}) {
  auto* owned = new std::vector<T>(std::move(values));
  if (shape.empty()) shape = {static_cast<py::ssize_t>(owned->size())};
  const py::capsule keeper(owned, [](void* p) { delete static_cast<std::vector<T>*>(p); });
  return py::array_t<T>(std::move(shape), owned->data(), keeper);
}
py::array_t<double> array_of(Dense m) {
  const std::vector<py::ssize_t> shape{static_cast<py::ssize_t>(m.rows), static_cast<py::ssize_t>(m.cols)};
  return array_of(std::move(m.values), shape);
}
template <typename T>
std::vector<T> vector_of(const py::array_t<T, py::array::c_style | py::array::forcecast>& a) {
  return {a.data(), a.data() + a.size()};
}
Dense dense_of(const py::array_t<double, py::array::c_style | py::array::forcecast>& a) {
  if (a.ndim() != 2) throw py::value_error("expected a 2-D array");
  Dense m;
  m.rows = static_cast<size_t>(a.shape(0));
  m.cols = static_cast<size_t>(a.shape(1));
  m.values.assign(a.data(), a.data() + a.size());
  return m;
}
using DoubleArray = py::array_t<double, py::array::c_style | py::array::forcecast>;

py::tuple state_of(const CodeBook& b) {
  return py::make_tuple(std::string(name(b.scheme)), b.bits, b.range, b.truncation, b.centre, b.step,
                        b.complex);
}
CodeBook book_of(const py::tuple& t) {
  return {scheme_of(t[0].cast<std::string>()),
          t[1].cast<unsigned>(),
          t[2].cast<std::vector<double>>(),
          t[3].cast<std::vector<double>>(),
          t[4].cast<std::vector<double>>(),
          t[5].cast<double>(),
          t[6].cast<bool>()};
}
py::list state_of(const std::vector<DitherPlace>& places, const std::vector<size_t>& rows) {
  py::list out;
  for (size_t i = 0; i < places.size(); ++i)
    out.append(py::make_tuple(places[i].seed, places[i].stream, places[i].first_row, rows[i]));
  return out;
}
void places_of(const py::list& list, std::vector<DitherPlace>& places, std::vector<size_t>& rows) {
  for (const auto& item : list) {
    const auto t = item.cast<py::tuple>();
    places.push_back({t[0].cast<uint64_t>(), t[1].cast<uint32_t>(), t[2].cast<uint64_t>()});
    rows.push_back(t[3].cast<size_t>());
  }
}
template <typename T>
std::vector<T> ints(const py::handle& h) {
  return vector_of<T>(h.cast<py::array_t<T, py::array::c_style | py::array::forcecast>>());
}

Pairing pairing_of(const std::string& text) {
  if (text == "raw") return Pairing::raw;
  if (text == "all_pairs") return Pairing::all_pairs;
  fail(ErrorCode::usage, "unknown pairing \"", text, "\": one of all_pairs, raw");
}
Shrink shrink_of(const std::string& text) {
  if (text == "hard") return Shrink::hard;
  if (text == "soft") return Shrink::soft;
  fail(ErrorCode::usage, "unknown threshold \"", text, "\": one of hard, soft");
}

size_t checked(size_t index, size_t count, const char* what) {
  if (index >= count) throw py::index_error(cat(what, " ", index, " of ", count));
  return index;
}

// Empty: the fastest. For benches, that compare them.
const Kernels& kernel_of(const std::string& name) {
  if (name.empty()) return kernels();
  for (const Kernels* k : runnable_kernels())
    if (name == k->name) return *k;
  fail(ErrorCode::usage, "this processor does not run a kernel \"", name, "\"");
}

void translate(const Error& e) {
  switch (e.code()) {
    case ErrorCode::usage:
    case ErrorCode::input:
    case ErrorCode::unsupported:
      PyErr_SetString(PyExc_ValueError, e.what());
      return;
    case ErrorCode::io:
      PyErr_SetString(PyExc_OSError, e.what());
      return;
    default:
      PyErr_SetString(PyExc_RuntimeError, e.what());
  }
}

using release = py::call_guard<py::gil_scoped_release>;

void bind_bits(py::module_& m) {
  py::class_<CodeBook>(
      m, "CodeBook",
      R"(What one needs to read dithered codes: CodeBook(scheme, bits, range, truncation=[], centre=[], step=0, complex=False).

scheme: "one_bit" (sign(x + U), U uniform on +-range), "two_dither" (two of them), "triangular" (U1 + U2; `bits` of 2 or
more) or "multi_bit" (U; stochastic rounding). range, truncation (clipping before the dither, at most the range) and centre
(subtracted first) hold a number for each column. A code c of L = 2^bits levels stands for centre + step / 2 (2 c - (L - 1));
step 0 is the least that holds the range. arXiv 2202.13157, 2308.16059.)")
      .def(
          py::init([](const std::string& scheme, unsigned bits, std::vector<double> range,
                      std::vector<double> truncation, std::vector<double> centre, double step, bool complex) {
            CodeBook b{scheme_of(scheme), bits, std::move(range), std::move(truncation),
                       std::move(centre), step, complex};
            b.validate();
            return b;
          }),
          py::arg("scheme"), py::arg("bits"), py::arg("range"), py::arg("truncation") = std::vector<double>{},
          py::arg("centre") = std::vector<double>{}, py::arg("step") = 0.0, py::arg("complex") = false)
      .def_property_readonly("scheme", [](const CodeBook& b) { return std::string(name(b.scheme)); })
      .def_readonly("bits", &CodeBook::bits)
      .def_readonly("range", &CodeBook::range)
      .def_readonly("centre", &CodeBook::centre)
      .def_readonly("complex", &CodeBook::complex)
      .def("step_of",
           [](const CodeBook& b, size_t j) { return b.step_of(checked(j, b.columns(), "column")); })
      .def("privacy_epsilon",
           [](const CodeBook& b, size_t j) { return privacy_epsilon(b, checked(j, b.columns(), "column")); })
      .def("__eq__", [](const CodeBook& a, const CodeBook& b) { return a == b; })
      .def(py::pickle([](const CodeBook& b) { return state_of(b); },
                      [](const py::tuple& t) { return book_of(t); }));
  py::class_<BitMatrix>(m, "Bits",
                        "Codes of n rows and d columns as packed bit planes: what quantise returns.")
      .def_property_readonly("rows", &BitMatrix::rows)
      .def_property_readonly("book", &BitMatrix::book)
      .def_property_readonly("nbytes", &BitMatrix::payload_bytes)
      .def_property_readonly("has_mask", &BitMatrix::has_mask)
      .def(
          "slice",
          [](const BitMatrix& b, size_t first, size_t count) {
            if (first > b.rows() || count > b.rows() - first)
              throw py::index_error(cat("rows ", first, " to ", first, " + ", count, " of ", b.rows()));
            return b.slice(first, count);
          },
          py::arg("first"), py::arg("count"), "Rows first to first + count as bits of their own.")
      .def("__eq__", [](const BitMatrix& a, const BitMatrix& b) { return a == b; })
      .def(
          "decode",
          [](const BitMatrix& b, unsigned dither) {
            checked(dither, b.book().scheme == Scheme::two_dither ? 2 : 1, "dither");
            Dense out(b.rows(), b.columns());
            for (size_t i = 0; i < b.rows(); ++i)
              for (size_t j = 0; j < b.columns(); ++j)
                out(i, j) = b.book().centre_of(j) + b.value(i, j, dither);
            return array_of(std::move(out));
          },
          py::arg("dither") = 0,
          "The (n, d) values that the codes stand for; dither 0 or 1 picks one of two_dither's.");
  m.def(
      "quantise",
      [](const py::array& x, const CodeBook& book, uint64_t seed, uint32_t stream, uint64_t first_row,
         bool mask, unsigned threads) {
        const Matrix view = matrix_of(x);
        const py::gil_scoped_release unlocked;
        return quantise(view, book, {seed, stream, first_row}, mask ? Missing::mask : Missing::error,
                        threads);
      },
      py::arg("x"), py::arg("book"), py::arg("seed") = 0, py::arg("stream") = 0, py::arg("first_row") = 0,
      py::arg("mask") = false, py::arg("threads") = 0);
  m.def("bits_for",
        [](const std::string& s, double range, double step) { return bits_for(scheme_of(s), range, step); });
  m.def("light_tail_range", &light_tail_range);
  m.def("moment_range", [](const std::string& problem, double moment, double order, size_t n, size_t d) {
    const std::pair<const char*, Problem> known[] = {{"mean", Problem::mean},
                                                     {"covariance", Problem::covariance},
                                                     {"regression", Problem::regression},
                                                     {"regression_quantised", Problem::regression_quantised},
                                                     {"completion", Problem::completion}};
    for (const auto& [text, value] : known)
      if (problem == text) return moment_range(value, moment, order, n, d);
    fail(ErrorCode::usage, "unknown problem \"", problem, "\"");
  });
  m.def("truncation_level", &truncation_level);
  m.def("write_bits", [](const std::string& path, const std::vector<const BitMatrix*>& blocks) {
    if (blocks.empty()) throw py::value_error("no blocks to write");
    BitsWriter writer(path, blocks[0]->book());
    for (const BitMatrix* b : blocks) writer.append(*b);
    writer.close();
  });
  py::class_<BitsReader>(m, "BitsReader", R"(Reads a bits file (docs/reference/bits.md) block by block:

    for block in BitsReader("x.bits"):
        counts.add(block)

`book` is the CodeBook of all blocks. A file that is cut short or changed raises ValueError that names the block.)")
      .def(py::init<std::string>())
      .def_property_readonly("book", &BitsReader::book)
      .def("__iter__", [](py::object self) { return self; })
      .def("__next__", [](BitsReader& r) {
        BitMatrix block;
        if (!r.next(block)) throw py::stop_iteration();
        return block;
      });
}

void bind_counts(py::module_& m) {
  py::class_<MeanCounts>(m, "MeanCounts")
      .def(py::init<CodeBook>())
      .def("add", &MeanCounts::add)
      .def("merge", &MeanCounts::merge)
      .def("rows",
           [](const MeanCounts& c, size_t j) { return c.rows(checked(j, c.book().columns(), "column")); })
      .def("mean", [](const MeanCounts& c) { return array_of(c.mean()); })
      .def("standard_errors", [](const MeanCounts& c) { return array_of(c.standard_errors()); })
      .def("__eq__", [](const MeanCounts& a, const MeanCounts& b) { return a == b; })
      .def(py::pickle(
          [](const MeanCounts& c) {
            const auto s = c.state();
            return py::make_tuple(state_of(s.book), s.seen, s.sums, s.squares,
                                  state_of(s.places, s.place_rows));
          },
          [](const py::tuple& t) {
            MeanCounts::State s;
            s.book = book_of(t[0]);
            s.seen = t[1].cast<std::vector<uint64_t>>();
            s.sums = t[2].cast<std::vector<int64_t>>();
            s.squares = t[3].cast<std::vector<int64_t>>();
            places_of(t[4], s.places, s.place_rows);
            return MeanCounts::from_state(std::move(s));
          }));
  m.def("pilot_book", [](const py::array& x, size_t total, double corrupted) {
    PilotBook p = pilot_book(matrix_of(x), total, corrupted);
    return py::make_tuple(p.book, p.rows);
  });
  py::class_<CovarianceCounts>(m, "CovarianceCounts")
      .def(py::init([](const CodeBook& b, const std::string& pairing, bool errors) {
             return CovarianceCounts(b, pairing_of(pairing), errors);
           }),
           py::arg("book"), py::arg("pairing") = "all_pairs", py::arg("with_errors") = false)
      .def(
          "add",
          [](CovarianceCounts& c, const BitMatrix& bits, unsigned threads, const std::string& kernel) {
            c.add(bits, threads, kernel_of(kernel));
          },
          py::arg("bits"), py::arg("threads") = 0, py::arg("kernel") = "", release())
      .def("merge", &CovarianceCounts::merge)
      .def_property_readonly("rows", &CovarianceCounts::rows)
      .def_property_readonly("book", &CovarianceCounts::book)
      .def(
          "second_moment",
          [](const CovarianceCounts& c, const std::vector<double>& v) {
            return array_of(c.second_moment(v));
          },
          py::arg("variances") = std::vector<double>{})
      .def(
          "covariance",
          [](const CovarianceCounts& c, const std::vector<double>& v) { return array_of(c.covariance(v)); },
          py::arg("variances") = std::vector<double>{})
      .def("mean", [](const CovarianceCounts& c) { return array_of(c.mean()); })
      .def("standard_errors", [](const CovarianceCounts& c) { return array_of(c.standard_errors()); })
      .def("pair_counts",
           [](const CovarianceCounts& c) {
             Dense out(c.columns(), c.columns());
             for (size_t i = 0; i < c.columns(); ++i)
               for (size_t j = 0; j < c.columns(); ++j) out(i, j) = static_cast<double>(c.pairs(i, j));
             return array_of(std::move(out));
           })
      .def("__eq__", [](const CovarianceCounts& a, const CovarianceCounts& b) { return a == b; })
      .def(py::pickle(
          [](const CovarianceCounts& c) {
            auto s = c.state();
            return py::make_tuple(state_of(s.book), s.pairing == Pairing::raw ? "raw" : "all_pairs", s.rows,
                                  array_of(std::move(s.sums)), array_of(std::move(s.squares)),
                                  array_of(std::move(s.pairs)), s.column_sums,
                                  state_of(s.places, s.place_rows));
          },
          [](const py::tuple& t) {
            CovarianceCounts::State s;
            s.book = book_of(t[0]);
            s.pairing = pairing_of(t[1].cast<std::string>());
            s.rows = t[2].cast<uint64_t>();
            s.sums = ints<int64_t>(t[3]);
            s.squares = ints<int64_t>(t[4]);
            s.pairs = ints<int64_t>(t[5]);
            s.column_sums = t[6].cast<std::vector<int64_t>>();
            places_of(t[7], s.places, s.place_rows);
            return CovarianceCounts::from_state(std::move(s));
          }));
}

void bind_covariance(py::module_& m) {
  m.def("threshold", [](const DoubleArray& a, const std::string& shrink, double multiple,
                        const std::vector<double>& scale, uint64_t n) {
    Dense out = dense_of(a);
    threshold(out, shrink_of(shrink), multiple, scale, n);
    return array_of(std::move(out));
  });
  m.def("choose_threshold", [](const BitMatrix& bits, const std::string& pairing, const std::string& shrink,
                               const std::vector<double>& candidates, unsigned folds, unsigned threads) {
    const ThresholdChoice c =
        choose_threshold(bits, pairing_of(pairing), shrink_of(shrink), candidates, folds, threads);
    return py::make_tuple(c.multiple, c.criterion);
  });
  m.def("smallest_eigenvalue", [](const DoubleArray& a) { return smallest_eigenvalue(dense_of(a)); });
  m.def(
      "project_psd",
      [](const DoubleArray& a, double floor) { return array_of(project_psd(dense_of(a), floor)); },
      py::arg("matrix"), py::arg("floor") = 0.0);
  m.def("shrink_to_definite",
        [](const DoubleArray& a, double floor) { return array_of(shrink_to_definite(dense_of(a), floor)); });
  m.def("arcsine_correlation",
        [](const py::array& x) { return array_of(arcsine_correlation(matrix_of(x))); });
}

template <typename Choice>
py::tuple choice_of(const Choice& c) {
  return py::make_tuple(c.multiple, c.criterion);
}

void bind_regression(py::module_& m) {
  py::class_<LassoFit>(m, "LassoFit")
      .def_property_readonly("coefficients", [](const LassoFit& f) { return array_of(f.coefficients); })
      .def_property_readonly("path", [](const LassoFit& f) { return std::string(name(f.path)); })
      .def_readonly("iterations", &LassoFit::iterations)
      .def_readonly("converged", &LassoFit::converged)
      .def_readonly("optimality", &LassoFit::optimality)
      .def_readonly("objective", &LassoFit::objective)
      .def_readonly("smallest_eigenvalue", &LassoFit::smallest_eigenvalue)
      .def_readonly("warning", &LassoFit::warning);
  py::class_<LassoOptions>(m, "LassoOptions")
      .def(py::init([](double lambda, double radius, const std::string& path, int max_iterations,
                       double tolerance, unsigned threads) {
             return LassoOptions{lambda, radius, lasso_path_of(path), max_iterations, tolerance, threads};
           }),
           py::arg("lambda_") = 0.0, py::arg("radius") = std::numeric_limits<double>::infinity(),
           py::arg("path") = "automatic", py::arg("max_iterations") = 20000, py::arg("tolerance") = 1e-6,
           py::arg("threads") = 0);
  m.def("lasso_gram", [](const DoubleArray& g, const std::vector<double>& b, const LassoOptions& o) {
    const Dense gram = dense_of(g);
    const py::gil_scoped_release unlocked;
    return lasso_gram(gram, b, o);
  });
  m.def("lasso_full", [](const py::array& x, const BitMatrix& y, double truncation, const LassoOptions& o) {
    const Matrix view = matrix_of(x);
    const py::gil_scoped_release unlocked;
    return lasso_full(view, y, truncation, o);
  });
  m.def(
      "lasso_counts",
      [](const RegressionCounts& c, const LassoOptions& o) { return lasso_gram(c.gram(), c.cross(), o); },
      release());
  m.def("choose_lambda_full",
        [](const py::array& x, const BitMatrix& y, double truncation, const std::vector<double>& candidates,
           unsigned folds, const LassoOptions& o) {
          return choice_of(choose_lambda_full(matrix_of(x), y, truncation, candidates, folds, o));
        });
  m.def("choose_lambda_quantised",
        [](const BitMatrix& x, const BitMatrix& y, const std::string& pairing,
           const std::vector<double>& candidates, unsigned folds, const LassoOptions& o) {
          return choice_of(choose_lambda_quantised(x, y, pairing_of(pairing), candidates, folds, o));
        });
  m.def("lasso_errors_full",
        [](const py::array& x, const BitMatrix& y, double truncation, const std::vector<double>& c) {
          return array_of(lasso_errors_full(matrix_of(x), y, truncation, c));
        });
  m.def("lasso_errors_quantised", [](const BitMatrix& x, const BitMatrix& y, const std::vector<double>& c) {
    return array_of(lasso_errors_quantised(x, y, c));
  });
  py::class_<RegressionCounts>(m, "RegressionCounts")
      .def(py::init([](const CodeBook& x, const CodeBook& y, const std::string& pairing) {
             return RegressionCounts(x, y, pairing_of(pairing));
           }),
           py::arg("x"), py::arg("y"), py::arg("pairing") = "all_pairs")
      .def("add", &RegressionCounts::add, py::arg("x"), py::arg("y"), py::arg("threads") = 0, release())
      .def("merge", &RegressionCounts::merge)
      .def_property_readonly("rows", &RegressionCounts::rows)
      .def_property_readonly("gram_counts", &RegressionCounts::gram_counts)
      .def("gram", [](const RegressionCounts& c) { return array_of(c.gram()); })
      .def("cross", [](const RegressionCounts& c) { return array_of(c.cross()); })
      .def("state", [](const RegressionCounts& c) { return py::make_tuple(c.gram_counts(), c.cross_sums()); })
      .def_static("from_state", [](const py::tuple& t, const CodeBook& y) {
        return RegressionCounts::from_state(t[0].cast<CovarianceCounts>(), y,
                                            t[1].cast<std::vector<int64_t>>());
      });
}

void bind_completion(py::module_& m) {
  using Ints = py::array_t<int64_t, py::array::c_style | py::array::forcecast>;
  py::class_<CompletionOptions>(m, "CompletionOptions")
      .def(py::init<double, double, int, double, unsigned>(), py::arg("lambda_") = 0.0,
           py::arg("bound") = 1.0, py::arg("max_iterations") = 500, py::arg("tolerance") = 1e-6,
           py::arg("threads") = 0);
  py::class_<CompletionCounts>(m, "CompletionCounts")
      .def(py::init<size_t, size_t, CodeBook>())
      .def("add",
           [](CompletionCounts& c, const Ints& i, const Ints& j, const BitMatrix& b) {
             c.add({vector_of(i), vector_of(j)}, b);
           })
      .def("merge", &CompletionCounts::merge)
      .def_property_readonly("observations", &CompletionCounts::observations)
      .def("__eq__", [](const CompletionCounts& a, const CompletionCounts& b) { return a == b; })
      .def(py::pickle(
          [](const CompletionCounts& c) {
            auto s = c.state();
            return py::make_tuple(s.rows, s.cols, state_of(s.book), s.observations,
                                  array_of(std::move(s.seen)), array_of(std::move(s.sums)),
                                  state_of(s.places, s.place_rows));
          },
          [](const py::tuple& t) {
            CompletionCounts::State s;
            s.rows = t[0].cast<size_t>();
            s.cols = t[1].cast<size_t>();
            s.book = book_of(t[2]);
            s.observations = t[3].cast<uint64_t>();
            s.seen = ints<int32_t>(t[4]);
            s.sums = ints<int64_t>(t[5]);
            places_of(t[6], s.places, s.place_rows);
            return CompletionCounts::from_state(std::move(s));
          }));
  m.def("completion_lambda", &completion_lambda);
  m.def("complete", [](const CompletionCounts& c, const CompletionOptions& o) {
    CompletionFit f;
    {
      const py::gil_scoped_release unlocked;
      f = complete(c, o);
    }
    return py::make_tuple(array_of(std::move(f.matrix)), f.rank, f.iterations, f.converged, f.residual,
                          f.warning);
  });
  m.def("choose_completion_lambda",
        [](const Ints& i, const Ints& j, const BitMatrix& b, size_t rows, size_t cols,
           const std::vector<double>& candidates, unsigned folds, const CompletionOptions& o) {
          return choice_of(
              choose_completion_lambda({vector_of(i), vector_of(j)}, b, rows, cols, candidates, folds, o));
        });
}

}  // namespace

PYBIND11_MODULE(_stats, m) {
  m.doc() = "One-bit statistics: the C++ side of trireme.stats.";
  py::register_exception_translator([](std::exception_ptr p) {
    try {
      if (p) std::rethrow_exception(p);
    } catch (const Error& e) {
      translate(e);
    }
  });
  bind_bits(m);
  bind_counts(m);
  bind_covariance(m);
  bind_regression(m);
  bind_completion(m);
  m.def("kernel_name", [] { return std::string(kernels().name); });
  m.def("kernel_names", [] {
    std::vector<std::string> names;
    for (const Kernels* k : runnable_kernels()) names.emplace_back(k->name);
    return names;
  });
}
