#include "check.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

namespace tnt::test {
namespace {

struct Test {
  const char* name;
  void (*body)();
};

std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

bool passes(const Test& test) {
  const auto begin = std::chrono::steady_clock::now();
  std::string error;
  try {
    test.body();
  } catch (const std::exception& failure) {
    error = failure.what();
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  std::printf("%-8s%-64s%7.2f s\n", error.empty() ? "ok" : "FAILED", test.name, elapsed.count());
  if (!error.empty()) std::printf("        %s\n", error.c_str());
  std::fflush(stdout);
  return error.empty();
}

}  // namespace

Registration::Registration(const char* name, void (*body)()) { tests().push_back({name, body}); }

}  // namespace tnt::test

int main(int argc, char** argv) {
  using namespace tnt::test;
  const std::vector<std::string> wanted(argv + 1, argv + argc);
  int ran = 0, failed = 0;
  for (const Test& test : tests()) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), test.name) == wanted.end())
      continue;
    ++ran;
    if (!passes(test)) ++failed;
  }
  std::printf("%d of %d failed\n", failed, ran);
  return failed == 0 && ran > 0 ? 0 : 1;
}
