#include "trireme/base/process.h"

#include <gtest/gtest.h>

#include <csignal>

#include "trireme/base/error.h"

namespace trireme {
namespace {

Deadline soon() {
  return Deadline::after(steady_clock(), 30);
}

std::vector<std::string> lines_of(Process& process) {
  std::vector<std::string> lines;
  for (std::string line; process.next_line(line, soon()) == Process::Event::line;) lines.push_back(line);
  return lines;
}

TEST(Process, GivesLinesExitCodeAndLastError) {
  const auto processes = system_processes();
  const auto p = processes->start({"/bin/sh", "-c", "echo one; echo two >&2; printf three; exit 3"});
  EXPECT_EQ(lines_of(*p), (std::vector<std::string>{"one", "three"}));
  EXPECT_EQ(p->exit_code(), 3);
  EXPECT_EQ(p->last_error(), "two\n");
}

TEST(Process, TimesOutWithoutLosingTheProcess) {
  const auto processes = system_processes();
  const auto p = processes->start({"sleep", "60"});
  std::string line;
  EXPECT_EQ(p->next_line(line, {steady_clock().now()}), Process::Event::timeout);
  p->stop(30);
  EXPECT_EQ(p->exit_code(), 128 + SIGTERM);
  EXPECT_EQ(p->next_line(line, soon()), Process::Event::end);
}

TEST(Process, StopReachesWhatItStartedAndWhatIgnoresSigterm) {
  const auto processes = system_processes();
  const auto p = processes->start({"/bin/sh", "-c", "trap '' TERM; echo ready; sleep 60; sleep 60"});
  std::string line;
  ASSERT_EQ(p->next_line(line, soon()), Process::Event::line);
  p->stop(0.05);
  EXPECT_EQ(p->exit_code(), 128 + SIGKILL);
}

TEST(Process, AGrandchildThatHoldsThePipeIsNotWaitedFor) {
  const auto processes = system_processes();
  const auto p = processes->start({"/bin/sh", "-c", "sleep 60 & echo done"});
  EXPECT_EQ(lines_of(*p), std::vector<std::string>{"done"});
  EXPECT_EQ(p->exit_code(), 0);
}

TEST(Process, CancelEndsEveryWait) {
  const auto processes = system_processes();
  const auto p = processes->start({"sleep", "60"});
  processes->cancel();
  std::string line;
  EXPECT_EQ(p->next_line(line, soon()), Process::Event::cancelled);
  EXPECT_EQ(p->next_line(line, soon()), Process::Event::cancelled);
}

TEST(Process, FinishHeedsNoCancel) {
  const auto processes = system_processes();
  const auto p = processes->start({"/bin/sh", "-c", "echo cleaning; exit 4"});
  processes->cancel();
  EXPECT_TRUE(p->finish(soon()));
  EXPECT_EQ(p->exit_code(), 4);
}

TEST(Process, AProgramThatIsNotThereIsNamed) {
  const auto processes = system_processes();
  try {
    processes->start({"no-such-program-here"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "cannot run no-such-program-here: No such file or directory");
  }
}

}  // namespace
}  // namespace trireme
