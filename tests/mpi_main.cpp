// main of every test that runs on several ranks: a rank whose test fails ends the job, for its
// peers would wait for it.
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <cstdlib>

#include "mpi_test_session.hpp"
#include "runtime/job/mpi_session.hpp"
#include "runtime/job/tcp_session.hpp"

namespace meshplan::test {
namespace {

const runtime::Session* open_session = nullptr;  // Catch test cases take no arguments

struct AbortOnFailure : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    if (!stats.totals.assertions.allOk()) open_session->abort(1);
  }
};
CATCH_REGISTER_LISTENER(AbortOnFailure)

}  // namespace

const runtime::Session& mpi_session() {
  return *open_session;
}

}  // namespace meshplan::test

int main(int argc, char** argv) {
  namespace runtime = meshplan::runtime;
  std::unique_ptr<runtime::Session> session;
  const auto place = runtime::read_rendezvous([](const char* name) { return std::getenv(name); });
  if (place)
    session = std::make_unique<runtime::TcpSession>(*place, meshplan::Seconds{60});
  else
    session = std::make_unique<runtime::MpiSession>(argc, argv);
  meshplan::test::open_session = session.get();
  return Catch::Session().run(argc, argv);
}
