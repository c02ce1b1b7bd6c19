#include "runtime/launch/rendezvous.hpp"

#include <catch2/catch.hpp>
#include <map>

#include "core/error.hpp"

namespace meshplan::runtime {
namespace {

using Catch::Matchers::Contains;

std::optional<Rendezvous> read(std::map<std::string, std::string> variables) {
  return read_rendezvous([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string error_of(const std::map<std::string, std::string>& variables) {
  try {
    read(variables);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "none";
}

const std::map<std::string, std::string> kComplete = {{"RANK", "3"},
                                                      {"WORLD_SIZE", "4"},
                                                      {"LOCAL_RANK", "1"},
                                                      {"MASTER_ADDR", "node-a"},
                                                      {"MASTER_PORT", "29500"}};

}  // namespace

TEST_CASE("torchrun's variables name a rank's place", "[runtime][rendezvous]") {
  CHECK(read({}) == std::nullopt);
  CHECK(read(kComplete) == Rendezvous{3, 4, 1, "node-a", 29500, 0, ""});
  auto variables = kComplete;
  variables["LOCAL_WORLD_SIZE"] = "2";
  CHECK(read(variables)->local_world_size == 2);
}

TEST_CASE("A variable that is missing or wrong is named", "[runtime][rendezvous]") {
  for (const auto& [name, value] : kComplete) {
    auto variables = kComplete;
    variables.erase(name);
    INFO(name);
    CHECK_THAT(error_of(variables), Contains(name + " is not set"));
  }
  const auto with = [](const char* name, const char* value) {
    auto variables = kComplete;
    variables[name] = value;
    return error_of(variables);
  };
  CHECK_THAT(with("RANK", "4"), Contains("RANK='4': must be a number from 0 to 3"));
  CHECK_THAT(with("RANK", "two"), Contains("RANK='two'"));
  CHECK_THAT(with("WORLD_SIZE", "0"), Contains("WORLD_SIZE='0'"));
  CHECK_THAT(with("MASTER_PORT", "70000"), Contains("from 1 to 65535"));
}

TEST_CASE("The job's secret must not be guessable, and is not repeated", "[runtime][rendezvous]") {
  auto variables = kComplete;
  variables["MESHPLAN_JOB_SECRET"] = "hunter2";
  CHECK_THAT(error_of(variables), Contains("MESHPLAN_JOB_SECRET has 7 characters") &&
                                      Contains("at least 16") && !Contains("hunter2"));
  variables["MESHPLAN_JOB_SECRET"] = "";
  CHECK_THAT(error_of(variables), Contains("MESHPLAN_JOB_SECRET has 0 characters"));
  variables["MESHPLAN_JOB_SECRET"] = "0123456789abcdef";
  CHECK(read(variables)->secret == "0123456789abcdef");
}

TEST_CASE("Who may join a job follows from secret and machines", "[runtime][rendezvous]") {
  Rendezvous place{.rank = 0, .world_size = 4, .address = "127.0.0.1", .port = 29500};
  CHECK(admission_of(place) == Admission::SameUser);
  place.address = "localhost";
  CHECK(admission_of(place) == Admission::SameUser);
  CHECK(admission_warning(place) == std::nullopt);

  place.address = "192.0.2.1";  // an address of nobody (RFC 5737)
  CHECK(admission_of(place) == Admission::Anyone);
  CHECK_THAT(admission_warning(place).value_or("none"),
             Contains("192.0.2.1:29500 without a secret") && Contains("MESHPLAN_JOB_SECRET"));
  place.rank = 1;
  CHECK(admission_warning(place) == std::nullopt);  // rank 0 has said it
  place.rank = 0;
  place.local_world_size = 4;
  CHECK(admission_of(place) == Admission::SameUser);  // torchrun on one machine, by its name
  place.local_world_size = 2;
  place.secret = "0123456789abcdef";
  CHECK(admission_of(place) == Admission::Secret);
  CHECK(admission_warning(place) == std::nullopt);
}

}  // namespace meshplan::runtime
