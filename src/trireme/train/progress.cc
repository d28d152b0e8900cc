#include "trireme/train/progress.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "trireme/base/units.h"

namespace trireme::train {
namespace {

constexpr double kRedrawSeconds = 0.1, kLineSeconds = 2;

std::string duration(double seconds) {
  const auto s = static_cast<int64_t>(std::llround(seconds));
  std::ostringstream out;
  if (s >= 3600) out << s / 3600 << " h ";
  if (s >= 60) out << s / 60 % 60 << " min ";
  if (s < 3600) out << s % 60 << " s ";
  out << "left";
  return out.str();
}

}  // namespace

Progress::Progress(std::ostream& out, const Clock& clock, bool terminal, int64_t first_step,
                   int64_t last_step)
    : out_(out),
      clock_(clock),
      terminal_(terminal),
      first_step_(first_step),
      last_step_(last_step),
      start_(clock.now()),
      printed_(start_) {}

Progress::~Progress() {
  if (terminal_ && any_) out_ << "\n" << std::flush;
}

double Progress::since(Clock::Nanoseconds begin) const {
  return std::chrono::duration<double>(clock_.now() - begin).count();
}

void Progress::step(int64_t step, double loss, int64_t samples, int64_t bytes) {
  samples_ += samples;
  bytes_ += bytes;
  const bool due = since(printed_) >= (terminal_ ? kRedrawSeconds : kLineSeconds);
  if (due || step == first_step_ || step == last_step_) print(step, loss);
}

void Progress::print(int64_t step, double loss) {
  const double seconds = std::max(since(printed_), 1e-9);
  const double per_step = since(start_) / static_cast<double>(step - first_step_ + 1);
  std::ostringstream line;
  line << "step " << step << "/" << last_step_ << "  loss " << std::fixed << std::setprecision(4) << loss
       << "  " << std::setprecision(1) << static_cast<double>(samples_) / seconds << " samples/s  ";
  if (bytes_ > 0) line << for_people(Rate{static_cast<double>(bytes_) / seconds}) << "  ";
  line << duration(per_step * static_cast<double>(last_step_ - step));
  // \r returns to the line's start, \033[K clears what the longer line before left behind.
  out_ << (terminal_ ? "\r" : "") << line.str() << (terminal_ ? "\033[K" : "\n") << std::flush;
  any_ = true;
  printed_ = clock_.now();
  samples_ = bytes_ = 0;
}

}  // namespace trireme::train
