#include "ranks/cuda_program.hpp"

#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "core/paths.hpp"

namespace meshplan::cli {
namespace {

bool driver_is_installed() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver != nullptr) dlclose(driver);
  return driver != nullptr;
}

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

}  // namespace

std::string become_cuda_program() {
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe").replace_filename("meshplan-cuda");
  if (!is_there(program))
    return "this meshplan was built without CUDA (configure with -DMESHPLAN_CUDA=ON)";
  if (!driver_is_installed()) return "there is no NVIDIA driver on this machine";
  std::vector<std::string> arguments = own_arguments();
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  return fmt::format("{} cannot be started: {}", program.string(), std::strerror(errno));
}

}  // namespace meshplan::cli
