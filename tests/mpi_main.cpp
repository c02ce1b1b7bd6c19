// main of every test that runs on several ranks: a rank whose test fails ends the job, for its
// peers would wait for it.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "catch_runner.hpp"
#include "mpi_test_session.hpp"
#include "runtime/job/mpi_session.hpp"
#include "runtime/job/tcp_session.hpp"

namespace meshplan::test {
namespace {

constexpr int kSkipped = 77;  // SKIP_RETURN_CODE in tests/CMakeLists.txt

const runtime::Session* open_session = nullptr;  // Catch test cases take no arguments

void abort_job() {
  open_session->abort(1);
}

}  // namespace

const runtime::Session& mpi_session() {
  return *open_session;
}

}  // namespace meshplan::test

int main(int argc, char** argv) {
  namespace runtime = meshplan::runtime;
  using meshplan::test::what_is_missing;
  const std::string missing = what_is_missing == nullptr ? "" : what_is_missing();
  if (!missing.empty()) {
    std::printf("skipped: %s\n", missing.c_str());
    return meshplan::test::kSkipped;
  }
  std::unique_ptr<runtime::Session> session;
  const auto place = runtime::read_rendezvous([](const char* name) { return std::getenv(name); });
  if (place)
    session = std::make_unique<runtime::TcpSession>(*place, meshplan::Seconds{60});
  else
    session = std::make_unique<runtime::MpiSession>(argc, argv);
  meshplan::test::open_session = session.get();
  return meshplan::test::run_tests(argc, argv, meshplan::test::abort_job);
}
