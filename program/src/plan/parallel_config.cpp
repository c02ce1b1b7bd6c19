#include "program/plan/parallel_config.hpp"

#include <fmt/format.h>
#include <utility>

namespace meshplan::program {

std::string to_string(const ParallelConfig& config) {
  std::string text;
  const auto add = [&text](const char* name, int degree) {
    if (degree > 1) text += fmt::format("{}{}{}", text.empty() ? "" : " ", name, degree);
  };
  add("tp", config.tp);
  if (config.sp) text += text.empty() ? "sp" : " sp";
  add("cp", config.cp);
  add("pp", config.pp);
  add("vpp", config.vpp);
  add("dp", config.dp);
  add("ep", config.ep);
  add("etp", config.etp);
  return text.empty() ? "one rank" : text;
}

}  // namespace meshplan::program
