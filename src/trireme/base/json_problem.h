#pragma once
// What is wrong with somebody's JSON, for an error line.
#include <exception>
#include <string>

namespace trireme {

// The problem that nlohmann's exception tells, without the parts of the text that it quotes: a broken file
// may hold anything, also a whole configuration or bytes that are no text. Other exceptions keep their
// message.
std::string json_problem(const std::exception& error);

}  // namespace trireme
