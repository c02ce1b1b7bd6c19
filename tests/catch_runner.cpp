// The one file that compiles all of Catch.
#include "catch_runner.hpp"

#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

namespace meshplan::test {
namespace {

void (*on_failure)() = nullptr;  // Catch makes its listeners itself

struct FailureListener : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    if (on_failure != nullptr && !stats.totals.assertions.allOk()) on_failure();
  }
};
CATCH_REGISTER_LISTENER(FailureListener)

}  // namespace

int run_tests(int argc, char** argv, void (*failed)()) {
  on_failure = failed;
  return Catch::Session().run(argc, argv);
}

}  // namespace meshplan::test
