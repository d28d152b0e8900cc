#pragma once
// Charts as inline SVG. Colours come from the page's CSS classes c0 … c5, so that they follow its light or
// dark theme.
#include <string>
#include <vector>

namespace trireme::train {

struct Point {
  double x = 0, y = 0;
  bool operator==(const Point&) const = default;
};

struct Series {
  std::string name;
  std::vector<Point> points;  // x ascending; points that are not finite are left out
};

struct LineChart {
  std::string title, x_label;
  std::vector<Series> series;
};

struct Bar {
  std::string name;
  std::vector<double> parts;  // seconds, >= 0, one for each of BarChart::parts
};

struct BarChart {
  std::string title;
  std::vector<std::string> parts;
  std::vector<Bar> bars;
};

inline constexpr size_t kColours = 6;

std::string to_svg(const LineChart& chart);
std::string to_svg(const BarChart& chart);  // horizontal, parts stacked

// At most `limit` points, each the mean of the neighbours it stands for.
std::vector<Point> thinned(const std::vector<Point>& points, size_t limit);

// Round numbers (1, 2 or 5 times a power of ten) inside [low, high], about `wanted` of them. low < high.
std::vector<double> ticks(double low, double high, int wanted);

// Text with <, >, & and quotes made safe.
std::string escaped(const std::string& text);

}  // namespace trireme::train
