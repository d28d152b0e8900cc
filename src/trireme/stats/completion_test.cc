#include "trireme/stats/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/stats/quantiser.h"
#include "trireme/stats/test_data.h"

namespace trireme::stats {
namespace {

using namespace testing;
using ::testing::HasSubstr;

struct Task {
  Dense truth, values;
  Entries entries;
};

// Rank 2, factors uniform on [-1, 1], largest entry 1; entries drawn with replacement, noise of standard
// deviation 0.3.
Task make_task(size_t d1, size_t d2, size_t n, uint64_t seed) {
  PhiloxStream random(seed, 5);
  Dense u(d1, 2), v(d2, 2);
  for (double& x : u.values) x = 2 * random.next_double() - 1;
  for (double& x : v.values) x = 2 * random.next_double() - 1;
  Task task{Dense(d1, d2), Dense(n, 1), {}};
  double top = 0;
  for (size_t i = 0; i < d1; ++i)
    for (size_t j = 0; j < d2; ++j) {
      task.truth(i, j) = u(i, 0) * v(j, 0) + u(i, 1) * v(j, 1);
      top = std::max(top, std::abs(task.truth(i, j)));
    }
  for (double& x : task.truth.values) x /= top;
  for (size_t k = 0; k < n; ++k) {
    task.entries.rows.push_back(static_cast<int64_t>(random.next_double() * static_cast<double>(d1)));
    task.entries.cols.push_back(static_cast<int64_t>(random.next_double() * static_cast<double>(d2)));
    task.values(k, 0) =
        task.truth(static_cast<size_t>(task.entries.rows[k]), static_cast<size_t>(task.entries.cols[k])) +
        0.3 * normal(random);
  }
  return task;
}

double mean_square(const Dense& a, const Dense& b) {
  double sum = 0;
  for (size_t k = 0; k < a.values.size(); ++k) sum += std::pow(a.values[k] - b.values[k], 2);
  return sum / static_cast<double>(a.values.size());
}

TEST(Completion, FindsRankAndErrorOfTheReference) {
  constexpr int trials = 5;
  double error = 0;
  for (int t = 0; t < trials; ++t) {
    const Task task = make_task(40, 40, 64000, 40 + t);
    const CodeBook book = book_of(Scheme::one_bit, 1, 2);
    CompletionCounts counts(40, 40, book);
    counts.add(task.entries, quantise(view(task.values), book, {}));
    const CompletionFit fit = complete(counts, {.lambda = completion_lambda(2, 40, 40, 64000)});
    EXPECT_TRUE(fit.converged);
    EXPECT_LT(fit.iterations, 60);
    EXPECT_EQ(fit.rank, 2u);
    error += mean_square(fit.matrix, task.truth) / trials;
  }
  EXPECT_NEAR(error, 0.0229, 0.1 * 0.0229);
}

TEST(Completion, LargeMatricesTakeTheSameSolution) {
  // Above 150 the block power iteration replaces the dense decomposition; the optimality conditions are the
  // judge: off the box, the residual gradient's spectral norm is at most lambda, so the fit must not change
  // when started again with a tighter tolerance.
  const Task task = make_task(170, 230, 40000, 3);
  const CodeBook book = book_of(Scheme::triangular, 1, 2, 4);
  CompletionCounts counts(170, 230, book);
  counts.add(task.entries, quantise(view(task.values), book, {}));
  const double lambda = 0.25 * completion_lambda(2, 170, 230, 40000);
  const CompletionFit fit = complete(counts, {.lambda = lambda});
  const CompletionFit tight = complete(counts, {.lambda = lambda, .max_iterations = 2000, .tolerance = 1e-9});
  EXPECT_TRUE(fit.converged);
  EXPECT_TRUE(tight.converged);
  EXPECT_LT(std::sqrt(mean_square(fit.matrix, tight.matrix)), 1e-3);
  EXPECT_LT(mean_square(fit.matrix, task.truth), 0.02);
}

TEST(Completion, StreamAndMergeGiveTheSameCounts) {
  const Task task = make_task(10, 12, 500, 3);
  const CodeBook book = book_of(Scheme::one_bit, 1, 2);
  const BitMatrix bits = quantise(view(task.values), book, {});
  const auto part = [&](size_t first, size_t count) {
    const auto cut = [&](const std::vector<int64_t>& v) {
      return std::vector<int64_t>(v.begin() + static_cast<std::ptrdiff_t>(first),
                                  v.begin() + static_cast<std::ptrdiff_t>(first + count));
    };
    CompletionCounts counts(10, 12, book);
    counts.add({cut(task.entries.rows), cut(task.entries.cols)}, bits.slice(first, count));
    return counts;
  };
  CompletionCounts whole(10, 12, book), left = part(0, 123);
  whole.add(task.entries, bits);
  left.merge(part(123, 377));
  EXPECT_EQ(left.state().sums, whole.state().sums);
  EXPECT_EQ(left.state().seen, whole.state().seen);
  EXPECT_EQ(CompletionCounts::from_state(whole.state()), whole);
}

TEST(Completion, FoldsPreferALambdaThatDenoises) {
  const Task task = make_task(40, 40, 30000, 9);
  const CodeBook book = book_of(Scheme::one_bit, 1, 2);
  const BitMatrix bits = quantise(view(task.values), book, {});
  const CompletionChoice choice =
      choose_completion_lambda(task.entries, bits, 40, 40, {0.01, 0.6, 1.0, 30}, 3, {});
  EXPECT_GE(choice.multiple, 0.6);
  EXPECT_LE(choice.multiple, 1.0);
}

TEST(Completion, WrongInputIsNamed) {
  const auto message_of = [](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const Error& e) {
      return e.what();
    }
    return "nothing thrown";
  };
  const CodeBook book = book_of(Scheme::one_bit, 1, 2);
  CompletionCounts counts(3, 4, book);
  const BitMatrix bits = quantise(view(Dense(2, 1, 0.5)), book, {});
  EXPECT_THAT(message_of([&] {
                counts.add({{0, 3}, {0, 0}}, bits);
              }),
              HasSubstr("observation 1 is at (3, 0), outside the 3 x 4"));
  EXPECT_THAT(message_of([&] { counts.add({{0}, {0, 0}}, bits); }), HasSubstr("as many of each"));
  EXPECT_THAT(message_of([&] { complete(counts, {}); }), HasSubstr("no observations"));
  counts.add({{0, 1}, {0, 0}}, bits);
  EXPECT_THAT(message_of([&] { complete(counts, {.bound = 0}); }), HasSubstr("bound 0"));
  EXPECT_THAT(complete(counts, {.lambda = 0, .max_iterations = 1, .tolerance = 0}).warning,
              HasSubstr("not converged after 1"));
}

}  // namespace
}  // namespace trireme::stats
