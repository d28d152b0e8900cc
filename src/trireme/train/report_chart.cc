#include "trireme/train/report_chart.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/base/units.h"

namespace trireme::train {
namespace {

// Of both kinds of chart, in SVG user units.
constexpr double kWidth = 640, kHeight = 300, kLeft = 64, kRight = 16, kTop = 34, kBottom = 42;
constexpr size_t kMaxPoints = 400;

struct Extent {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // Some room around the data, and a width even for a single value. A range that is only rounding counts as
  // one value: ticks cannot be told apart in it.
  Extent padded(double share) const {
    const double size = std::max(std::abs(low), std::abs(high));
    const double room = high - low > size * 1e-6 ? (high - low) * share : std::max(size, 1e-9) * 0.05;
    return {low - room, high + room};
  }
};

struct Axis {
  Extent data;
  double begin, end;  // positions of data.low and data.high
  double at(double value) const {
    return begin + (value - data.low) / (data.high - data.low) * (end - begin);
  }
};

std::string number(double value) {
  std::ostringstream out;
  out << std::setprecision(6) << value;
  return out.str();
}

std::string position(double value) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << value;
  return out.str();
}

std::string text_at(double x, double y, const char* anchor, const std::string& text) {
  return cat("<text x='", position(x), "' y='", position(y), "' text-anchor='", anchor, "'>", escaped(text),
             "</text>");
}

std::string line(double x1, double y1, double x2, double y2) {
  return cat("<line class='grid' x1='", position(x1), "' y1='", position(y1), "' x2='", position(x2),
             "' y2='", position(y2), "'/>");
}

std::string open_svg(const std::string& title, double height) {
  return cat("<svg viewBox='0 0 ", kWidth, " ", height, "' role='img' aria-label='", escaped(title), "'>",
             "<text class='title' x='0' y='16'>", escaped(title), "</text>");
}

// Names with their colours, in one row that ends at the right edge.
std::string legend(const std::vector<std::string>& names) {
  constexpr double kPerLetter = 7, kMark = 16, kGap = 14;
  double x = kWidth;
  for (const auto& name : names) x -= static_cast<double>(name.size()) * kPerLetter + kMark + kGap;
  x = std::max(x, 0.0);
  std::string out;
  for (size_t i = 0; i < names.size(); ++i) {
    out += cat("<rect class='fill c", i % kColours, "' x='", position(x),
               "' y='7' width='11' height='11' rx='2'/>");
    out += text_at(x + kMark, 16, "start", names[i]);
    x += static_cast<double>(names[i].size()) * kPerLetter + kMark + kGap;
  }
  return out;
}

std::string axes(const Axis& x, const Axis& y, const std::string& x_label) {
  std::string out;
  for (const double value : ticks(y.data.low, y.data.high, 5))
    out += line(kLeft, y.at(value), kWidth - kRight, y.at(value)) +
           text_at(kLeft - 8, y.at(value) + 4, "end", number(value));
  for (const double value : ticks(x.data.low, x.data.high, 7))
    out += text_at(x.at(value), kHeight - kBottom + 17, "middle", number(value));
  return out + line(kLeft, kHeight - kBottom, kWidth - kRight, kHeight - kBottom) +
         text_at((kLeft + kWidth - kRight) / 2, kHeight - 6, "middle", x_label);
}

std::string polyline(const Series& series, size_t colour, const Axis& x, const Axis& y) {
  std::string points;
  for (const auto& p : thinned(series.points, kMaxPoints))
    points += cat(position(x.at(p.x)), ",", position(y.at(p.y)), " ");
  return cat("<polyline class='stroke c", colour % kColours, "' points='", points, "'><title>",
             escaped(series.name), "</title></polyline>");
}

std::vector<Series> finite(std::vector<Series> all) {
  for (auto& series : all)
    std::erase_if(series.points, [](const Point& p) { return !std::isfinite(p.x) || !std::isfinite(p.y); });
  return all;
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::vector<Point> thinned(const std::vector<Point>& points, size_t limit) {
  if (points.size() <= limit) return points;
  std::vector<Point> kept;
  for (size_t group = 0; group < limit; ++group) {
    const size_t begin = group * points.size() / limit, end = (group + 1) * points.size() / limit;
    Point mean;
    for (size_t i = begin; i < end; ++i) {
      mean.x += points[i].x;
      mean.y += points[i].y;
    }
    const auto count = static_cast<double>(end - begin);
    kept.push_back({mean.x / count, mean.y / count});
  }
  return kept;
}

std::vector<double> ticks(double low, double high, int wanted) {
  TRIREME_CHECK(low < high && wanted > 0);
  const double rough = (high - low) / wanted;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double step = power * (rough / power < 1.5   ? 1
                               : rough / power < 3.5 ? 2
                               : rough / power < 7.5 ? 5
                                                     : 10);
  std::vector<double> values;
  // Multiples of the step rather than repeated sums, which drift; at most twice as many as wanted, whatever
  // rounding does.
  const double first = std::ceil(low / step);
  for (int i = 0; i <= 2 * wanted && (first + i) * step <= high; ++i) {
    const double value = (first + i) * step;
    values.push_back(value == 0 ? 0.0 : value);
  }
  return values;
}

std::string to_svg(const LineChart& chart) {
  const auto all = finite(chart.series);
  Extent xs, ys;
  std::vector<std::string> names;
  for (const auto& series : all) {
    names.push_back(series.name);
    for (const auto& p : thinned(series.points, kMaxPoints)) {
      xs.take(p.x);
      ys.take(p.y);
    }
  }
  std::string svg = open_svg(chart.title, kHeight) + legend(names);
  if (xs.low > xs.high) return svg + text_at(kWidth / 2, kHeight / 2, "middle", "no points yet") + "</svg>";
  const Axis x{xs.padded(0), kLeft, kWidth - kRight};
  const Axis y{ys.padded(0.05), kHeight - kBottom, kTop};
  svg += axes(x, y, chart.x_label);
  for (size_t i = 0; i < all.size(); ++i) svg += polyline(all[i], i, x, y);
  return svg + "</svg>";
}

std::string to_svg(const BarChart& chart) {
  constexpr double kRow = 34, kBar = 18, kNames = 150;
  const double height = kTop + kRow * static_cast<double>(chart.bars.size()) + kBottom;
  Extent extent;
  extent.take(0);
  for (const auto& bar : chart.bars) {
    double total = 0;
    for (const double part : bar.parts) total += part;
    extent.take(total);
  }
  if (extent.high <= 0) extent.high = 1;
  const Axis x{extent, kNames, kWidth - kRight};
  std::string svg = open_svg(chart.title, height) + legend(chart.parts);
  for (const double value : ticks(0, extent.high, 5))
    svg +=
        line(x.at(value), kTop, x.at(value), height - kBottom) +
        text_at(x.at(value), height - kBottom + 17, "middle", value == 0 ? "0" : for_people(Seconds{value}));
  double y = kTop + (kRow - kBar) / 2;
  for (const auto& bar : chart.bars) {
    svg += text_at(kNames - 8, y + kBar - 5, "end", bar.name);
    double begin = 0;
    for (size_t i = 0; i < bar.parts.size(); begin += bar.parts[i++])
      svg += cat("<rect class='fill c", i % kColours, "' x='", position(x.at(begin)), "' y='", position(y),
                 "' width='", position(x.at(bar.parts[i]) - x.at(0)), "' height='", kBar, "'><title>",
                 escaped(chart.parts.at(i)), ": ", for_people(Seconds{bar.parts[i]}), "</title></rect>");
    y += kRow;
  }
  return svg + "</svg>";
}

}  // namespace trireme::train
