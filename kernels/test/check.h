// Tests: TEST(name) { CHECK(...); }, in test_<topic>.cpp. The arguments of the program name topics
// or tests to run (all without arguments).
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace tnt::test {

// A check did not hold. Thrown, so that it may come from any thread that run() waits for.
struct CheckFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What a test needs is not on this machine. A topic whose tests all say so is skipped.
struct Skipped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Whether long sweeps are wanted too: TNT_THOROUGH=1.
bool thorough();

struct Registration {
  Registration(const char* file, const char* name, void (*body)());
};

[[noreturn]] inline void fail(const char* file, int line, const std::string& what) {
  throw CheckFailed(std::string(file) + ":" + std::to_string(line) + ": " + what);
}

template <class A, class B>
void check_equal(const A& a, const B& b, const char* text, const char* file, int line) {
  if (a == b) return;
  std::ostringstream message;
  message << text << ": " << a << " is not " << b;
  fail(file, line, message.str());
}

inline void check_contains(const std::string& text, const char* part, const char* file, int line) {
  if (text.find(part) == std::string::npos)
    fail(file, line, "\"" + text + "\" does not contain \"" + part + "\"");
}

// What the error says that call() throws.
template <class Error, class Call>
std::string thrown_by(Call call, const std::string& text = "the call") {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  throw CheckFailed(text + " did not throw");
}

}  // namespace tnt::test

#define TEST(name)                                                                   \
  static void name();                                                                \
  static const ::tnt::test::Registration registration_##name(__FILE__, #name, name); \
  static void name()

#define CHECK(condition) \
  ((condition) ? void() : ::tnt::test::fail(__FILE__, __LINE__, #condition " does not hold"))

#define CHECK_EQUAL(a, b) ::tnt::test::check_equal(a, b, #a " == " #b, __FILE__, __LINE__)

#define CHECK_CONTAINS(text, part) ::tnt::test::check_contains(text, part, __FILE__, __LINE__)

#define CHECK_THROWS(expression, Error) \
  ::tnt::test::thrown_by<Error>([&] { expression; }, #expression)
