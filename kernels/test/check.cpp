#include "check.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace tnt::test {
namespace {

struct Test {
  std::string topic;
  const char* name;
  void (*body)();
};

std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

// Of ".../test_shared.cpp": "shared".
std::string topic_of(const std::string& file) {
  const std::size_t begin = file.rfind("test_") + 5;
  return file.substr(begin, file.rfind('.') - begin);
}

enum class Outcome { ok, failed, skipped };

Outcome run(const Test& test) {
  const auto begin = std::chrono::steady_clock::now();
  Outcome outcome = Outcome::ok;
  std::string reason;
  try {
    test.body();
  } catch (const Skipped& skipped) {
    outcome = Outcome::skipped;
    reason = skipped.what();
  } catch (const std::exception& failure) {
    outcome = Outcome::failed;
    reason = failure.what();
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  constexpr const char* words[] = {"ok", "FAILED", "skipped"};
  std::printf("%-8s%-80s%7.2f s\n", words[static_cast<int>(outcome)], test.name, elapsed.count());
  if (outcome != Outcome::ok) std::printf("        %s\n", reason.c_str());
  std::fflush(stdout);
  return outcome;
}

}  // namespace

bool thorough() {
  const char* const value = std::getenv("TNT_THOROUGH");
  return value != nullptr && *value != '\0' && *value != '0';
}

Registration::Registration(const char* file, const char* name, void (*body)()) {
  tests().push_back({topic_of(file), name, body});
}

}  // namespace tnt::test

int main(int argc, char** argv) {
  using namespace tnt::test;
  const std::vector<std::string> wanted(argv + 1, argv + argc);
  const auto is_wanted = [&](const std::string& name) {
    return wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
  };
  int ran = 0, failed = 0, skipped = 0;
  for (const Test& test : tests()) {
    if (!is_wanted(test.topic) && !is_wanted(test.name)) continue;
    const Outcome outcome = run(test);
    ++ran;
    if (outcome == Outcome::failed) ++failed;
    if (outcome == Outcome::skipped) ++skipped;
  }
  std::printf("%d of %d failed, %d skipped\n", failed, ran, skipped);
  if (failed != 0 || ran == 0) return 1;
  return skipped == ran ? 77 : 0;
}
