#include "trireme/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace trireme::log {
namespace {
spdlog::logger& logger() {
  static const auto instance = [] {
    auto made = spdlog::stderr_color_mt("trireme");
    made->set_pattern("trireme %^%l%$: %v");
    made->flush_on(spdlog::level::info);
    return made;
  }();
  return *instance;
}
}  // namespace

void set_tag(std::string_view tag) {
  logger().set_pattern("trireme [" + std::string(tag) + "] %^%l%$: %v");
}
void set_level(Level level) {
  static constexpr spdlog::level::level_enum map[] = {spdlog::level::debug, spdlog::level::info,
                                                      spdlog::level::warn, spdlog::level::err};
  logger().set_level(map[static_cast<int>(level)]);
}
void debug(std::string_view m) {
  logger().debug("{}", m);
}
void info(std::string_view m) {
  logger().info("{}", m);
}
void warning(std::string_view m) {
  logger().warn("{}", m);
}
void error(std::string_view m) {
  logger().error("{}", m);
}

}  // namespace trireme::log
