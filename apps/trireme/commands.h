#pragma once
// The program's commands. Each adds its flags to its CLI::App and returns what runs when the user chose it;
// the result is the exit code. Failures are thrown as Error and printed once by main.
#include <CLI/App.hpp>
#include <array>
#include <functional>

namespace trireme::app {

struct Command {
  const char* name;
  const char* help;
  std::function<int()> (*setup)(CLI::App& app);
};

std::function<int()> setup_train(CLI::App& app);
std::function<int()> setup_report(CLI::App& app);
std::function<int()> setup_doctor(CLI::App& app);
std::function<int()> setup_serve(CLI::App& app);
std::function<int()> setup_load(CLI::App& app);
std::function<int()> setup_stats(CLI::App& app);
std::function<int()> setup_codec(CLI::App& app);
std::function<int()> setup_search(CLI::App& app);

inline constexpr auto kCommands = std::to_array<Command>({
    {"train", "train a model file on data, on this machine or as one rank of several", setup_train},
    {"serve", "answer requests for models over HTTP, as the Open Inference Protocol says", setup_serve},
    {"load", "send a server of that protocol requests at a given rate, or as a trace says", setup_load},
    {"report", "one HTML page that shows runs side by side", setup_report},
    {"doctor", "check this machine, its network and its peers", setup_doctor},
    {"stats", "means, covariances, regressions and matrices from dithered bits", setup_stats},
    {"codec", "list the gradient codecs and try them on files", setup_codec},
    {"search", "which machines, how many, before a deadline and within a budget", setup_search},
});

}  // namespace trireme::app
