// The folder of a tune: what was measured, as it happens, and what that was made of.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "planner/tune/tune_file.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::cli {

class TuneFolder {
 public:
  /// Makes the folder, or goes on with what it holds. One process at a time.
  /// @param request  by name, see planner::TuneFile
  /// @throws ConfigError if it holds another request's measurements, a broken file, or files that
  /// are no tune's; IoError if it cannot be written or another process tunes in it
  TuneFolder(std::string path, const std::map<std::string, std::string>& request);
  ~TuneFolder();
  TuneFolder(const TuneFolder&) = delete;
  TuneFolder& operator=(const TuneFolder&) = delete;

  /// What is kept; save() after every change.
  planner::TuneFile& file() { return file_; }
  void save() const;

  /// The cluster before anything was refined; absent until it was kept.
  std::optional<sim::Cluster> cluster() const;
  void keep_cluster(const sim::Cluster& cluster) const;
  void keep_refined(const sim::Cluster& cluster) const;

  std::string plan_file(std::size_t candidate) const;
  std::string trace_file(std::size_t candidate) const;  // of its first round
  /// A file of the run that is under way; removed with the object.
  std::string scratch_file(const std::string& name);
  std::string path_of(const std::string& name) const;

 private:
  std::string path_;
  int lock_ = -1;
  std::set<std::string> scratch_;  // no other file of the folder is removed
  planner::TuneFile file_;
};

}  // namespace meshplan::cli
