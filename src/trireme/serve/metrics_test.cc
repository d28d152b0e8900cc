#include "trireme/serve/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::serve {
namespace {

using ::testing::HasSubstr;

TEST(Metrics, HistogramsOfReplicasAddUp) {
  Histogram a(1, 2), b(1, 2), both(1, 2);
  for (int i = 0; i < 100; ++i) {
    (i % 3 == 0 ? a : b).add(i);
    both.add(i);
  }
  const auto x = a.snapshot(), y = b.snapshot(), z = both.snapshot();
  for (size_t i = 0; i < z.counts.size(); ++i) EXPECT_EQ(x.counts[i] + y.counts[i], z.counts[i]);
  EXPECT_EQ(x.bounds, y.bounds);
  EXPECT_EQ(z.total(), 100u);
}

TEST(Metrics, AValueOnABoundBelongsBelowIt) {
  Histogram h(1, 2);
  h.add(2);
  EXPECT_EQ(h.snapshot().counts[1], 1u);
  EXPECT_EQ(h.snapshot().quantile(0.5), 2);
}

TEST(Metrics, TextHasTritonsNamesAndCumulativeBuckets) {
  ModelMetrics m;
  m.success = 3;
  m.rows = 6;
  m.pending = 2;
  count_rejection(m, Reason::overloaded);
  count_rejection(m, Reason::cancelled);
  m.request_s.add(0.5);
  m.request_s.add(1e9);
  const auto text = render_metrics({{"a\"b", "1", &m}}, {4, true});
  EXPECT_THAT(text, HasSubstr("# TYPE nv_inference_request_success counter\n"));
  EXPECT_THAT(text, HasSubstr("nv_inference_request_success{model=\"a\\\"b\",version=\"1\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("version=\"1\",reason=\"REJECTED\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("version=\"1\",reason=\"CANCELED\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("nv_inference_count{model=\"a\\\"b\",version=\"1\"} 6\n"));
  EXPECT_THAT(text, HasSubstr("nv_inference_pending_request_count{model=\"a\\\"b\",version=\"1\"} 2\n"));
  EXPECT_THAT(
      text,
      HasSubstr("trireme_request_duration_seconds_bucket{model=\"a\\\"b\",version=\"1\",le=\"+Inf\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("trireme_request_duration_seconds_count{model=\"a\\\"b\",version=\"1\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("trireme_connections 4\n"));
}

}  // namespace
}  // namespace trireme::serve
