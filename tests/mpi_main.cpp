// main of every test that runs on several ranks: a rank whose test fails ends the job, for its
// peers would wait for it.
#define CATCH_CONFIG_RUNNER
#include <mpi.h>

#include <catch2/catch.hpp>

#include "mpi_test_session.hpp"

namespace meshplan::test {
namespace {

struct AbortOnFailure : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    if (!stats.totals.assertions.allOk()) MPI_Abort(MPI_COMM_WORLD, 1);
  }
};
CATCH_REGISTER_LISTENER(AbortOnFailure)

const runtime::MpiSession* open_session = nullptr;  // Catch test cases take no arguments

}  // namespace

const runtime::MpiSession& mpi_session() {
  return *open_session;
}

}  // namespace meshplan::test

int main(int argc, char** argv) {
  const meshplan::runtime::MpiSession session(argc, argv);
  meshplan::test::open_session = &session;
  return Catch::Session().run(argc, argv);
}
