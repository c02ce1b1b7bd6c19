#include "ranks/cuda_program.hpp"

#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <fmt/format.h>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "core/paths.hpp"
#include "process/own_arguments.hpp"

namespace meshplan::cli {
namespace {

bool driver_is_installed() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver != nullptr) dlclose(driver);
  return driver != nullptr;
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
