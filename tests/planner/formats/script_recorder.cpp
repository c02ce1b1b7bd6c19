#include "planner/formats/script_recorder.hpp"

#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <set>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.hpp"
#include "planner/formats/exported_text.hpp"

namespace meshplan::planner::format_tests {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRecorder =
    "#!/bin/bash\n{ printf '%s\\x1f' \"${0##*/}\" \"$@\"; echo; } >>\"$RECORD\"\n";

void write(const fs::path& path, const std::string& text, bool executable) {
  std::ofstream(path, std::ios::binary) << text;
  if (executable) fs::permissions(path, fs::perms::owner_exec, fs::perm_options::add);
}

bool is_script(const ExportedFile& file) {
  return file.executable || file.name.ends_with(".sbatch");
}

}  // namespace

ScriptRecorder::ScriptRecorder() {
  std::string pattern = (fs::temp_directory_path() / "meshplan-recorder-XXXXXX").string();
  require_invariant(mkdtemp(pattern.data()) != nullptr, "a folder for scripts can be made");
  root_ = pattern;
  fs::create_directories(root_ / "bin");
  fs::create_directories(root_ / "folder");
  for (const char* name :
       {"torchrun", "srun", "sbatch", "python", "python3", "accelerate", "deepspeed", "scontrol",
        "kubectl", "mpirun", "mpiexec", "touch", "import", "alert", "calc", "rm", "bash", "sh"})
    write(root_ / "bin" / name, kRecorder, /*executable=*/true);
  for (const char* name : {"dirname", "head"})
    fs::create_symlink(fs::path("/usr/bin") / name, root_ / "bin" / name);
}

ScriptRecorder::~ScriptRecorder() {
  std::error_code ignored;
  fs::remove_all(root_, ignored);
}

Recorded ScriptRecorder::run(const std::vector<ExportedFile>& files, const std::string& script) {
  std::string key = script + '\0';
  for (const ExportedFile& file : files)
    if (is_script(file)) key += file.name + '\0' + file.text + '\0';
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  for (const ExportedFile& file : files)
    if (is_script(file)) write(root_ / "folder" / file.name, file.text, /*executable=*/true);
  fs::remove(root_ / "record");
  // /bin/bash by name: the first words of the scripts say the same, but for env's, which PATH hides
  const std::string command = fmt::format(
      "cd '{0}/folder' && env -i PATH='{0}/bin' RECORD='{0}/record' HOME=/nowhere MOCK_DATA=1 "
      "TRAIN=train.py SLURM_JOB_ID=1 SLURM_JOB_NODELIST=n SLURM_SUBMIT_DIR=. TORCHTITAN_PATH=. "
      "/bin/bash '{1}' </dev/null >/dev/null 2>&1",
      root_.string(), script);
  const int status = std::system(command.c_str());
  const Recorded recorded{.starts = text_of_file(root_ / "record"),
                          .exit_code = WEXITSTATUS(status)};
  known_.emplace(std::move(key), recorded);
  return recorded;
}

std::vector<std::string> ScriptRecorder::planted() const {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(root_)) {
    const std::string name = entry.path().filename().string();
    const bool known = name == "record" || name == "bin" || name == "folder" ||
                       name.ends_with(".sh") || name.ends_with(".sbatch") ||
                       entry.path().parent_path() == root_ / "bin";
    if (!known) names.push_back(entry.path().string());
  }
  return names;
}

}  // namespace meshplan::planner::format_tests
