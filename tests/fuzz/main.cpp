// Feeds every reader with mutated inputs: scripts/fuzz.sh.
//   fuzz --seconds 120 --seed 1 --corpus DIR --keep DIR [--reader NAME|--without NAME] [--jobs N]
//   fuzz ... --most-seconds 2            an input that takes longer is a fault
//   fuzz --replay READER FILE...         one input each
//   fuzz --replay-all --corpus DIR       every file of the corpus
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "fuzz/mutate.hpp"
#include "fuzz/trial.hpp"

namespace meshplan::fuzz {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostReaders = 64;
constexpr double kMinimizeSeconds = 30;
constexpr std::size_t kMostPrinted = 2000;  // bytes of an input: where it was found may be gone

struct Options {
  double seconds = 10;
  std::uint64_t seed = 1;
  std::string corpus;
  std::string keep = "fuzz-findings";
  std::string reader;   // this one alone
  std::string without;  // all but this one
  int jobs = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  bool replay_all = false;
  std::vector<std::string> replay;  // reader, then files
};

struct Counts {
  std::int64_t inputs = 0;
  std::int64_t accepted = 0;
  std::int64_t slowest_ns = 0;
};

/// What a worker shares with the process that watches it.
struct Slot {
  std::atomic<std::int64_t> started_ns;  // of the input in work, by the clock; 0 = none
  std::atomic<double> processor_s;       // that the worker had used before it
  std::size_t reader;
  std::size_t size;
  char input[512 << 10];
  char fault[4096];
  Counts counts[kMostReaders];
};

std::int64_t time_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<fs::path> files_of(const std::string& corpus, const std::string& reader) {
  std::vector<fs::path> files;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(fs::path(corpus) / reader, none))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

struct Target {
  Reader reader;
  std::vector<Seed> seeds;
};

std::vector<Target> targets_of(const Options& options) {
  std::vector<Target> targets;
  std::vector<std::string> names;
  for (Reader& reader : all_readers()) {
    names.push_back(reader.name);
    if (!options.reader.empty() && reader.name != options.reader) continue;
    if (reader.name == options.without) continue;
    Target target{.reader = std::move(reader), .seeds = {}};
    for (const std::string& seed : target.reader.seeds) target.seeds.push_back(make_seed(seed));
    if (!options.corpus.empty())
      for (const fs::path& file : files_of(options.corpus, target.reader.name))
        target.seeds.push_back(make_seed(text_of(file)));
    require_invariant(!target.seeds.empty(), target.reader.name + " has no seed");
    targets.push_back(std::move(target));
  }
  if (targets.empty()) throw ConfigError(unknown_name_message("reader", options.reader, names));
  return targets;
}

// ---------------------------------------------------------------- a worker

[[noreturn]] void work(const std::vector<Target>& targets, Slot& slot, std::uint64_t seed,
                       Clock::time_point end) {
  confine_process();
  std::vector<std::size_t> round;
  for (std::size_t i = 0; i < targets.size(); ++i)
    round.insert(round.end(), targets[i].reader.weight, i);
  Random random(seed);
  while (Clock::now() < end) {
    const std::size_t i = random.pick(round);
    const std::string text = mutated(random, targets[i].seeds);
    slot.reader = i;
    slot.size = std::min(text.size(), sizeof slot.input);
    std::memcpy(slot.input, text.data(), slot.size);
    const std::int64_t start = time_of(CLOCK_THREAD_CPUTIME_ID);
    slot.processor_s = static_cast<double>(start) * 1e-9;
    slot.started_ns = time_of(CLOCK_MONOTONIC);
    const Verdict verdict =
        try_input(targets[i].reader, text, random.one_in(targets[i].reader.deep_every));
    slot.started_ns = 0;
    Counts& counts = slot.counts[i];
    ++counts.inputs;
    counts.accepted += verdict.accepted ? 1 : 0;
    counts.slowest_ns = std::max(counts.slowest_ns, time_of(CLOCK_THREAD_CPUTIME_ID) - start);
    if (verdict.fault.empty()) continue;
    std::strncpy(slot.fault, verdict.fault.c_str(), sizeof slot.fault - 1);
    _exit(1);  // what failed once may have left anything behind
  }
  _exit(0);
}

// ---------------------------------------------------------------- the watching process

class Campaign {
 public:
  Campaign(const Options& options, std::vector<Target> targets)
      : options_(options), targets_(std::move(targets)) {
    const std::size_t bytes = sizeof(Slot) * static_cast<std::size_t>(options.jobs);
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw IoError("cannot share memory with the workers");
    slots_ = static_cast<Slot*>(memory);
  }

  /// @returns the number of faults
  std::size_t run() {
    end_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                              std::chrono::duration<double>(options_.seconds));
    for (int job = 0; job < options_.jobs; ++job) start(job);
    while (!workers_.empty()) {
      int status = 0;
      const pid_t ended = waitpid(-1, &status, WNOHANG);
      if (ended > 0)
        finish(ended, status);
      else
        watch();
    }
    report();
    return kept_.size();
  }

 private:
  Slot& slot(int job) { return slots_[job]; }

  void start(int job) {
    slot(job).started_ns = 0;
    slot(job).fault[0] = '\0';
    const std::uint64_t seed = options_.seed * 1000003 + static_cast<std::uint64_t>(starts_++);
    std::fflush(stdout);
    const pid_t worker = fork();
    if (worker == 0) work(targets_, slot(job), seed, end_);
    workers_[worker] = job;
  }

  void watch() {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (const auto& [worker, job] : workers_) {
      const std::int64_t started = slot(job).started_ns;
      const auto waited = static_cast<double>(time_of(CLOCK_MONOTONIC) - started) * 1e-9;
      const double used = main_thread_seconds(worker) - slot(job).processor_s;
      if (started != 0 && (used > most_seconds || waited > kMostSecondsWaited))
        kill(worker, SIGKILL);
    }
  }

  void finish(pid_t worker, int status) {
    const int job = workers_.at(worker);
    workers_.erase(worker);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    const Slot& its = slot(job);
    std::string fault = its.fault;
    if (fault.empty() && WIFSIGNALED(status))
      fault = WTERMSIG(status) == SIGKILL ? fmt::format("takes more than {} s", most_seconds)
                                          : fmt::format("ended by signal {}", WTERMSIG(status));
    else if (fault.empty())
      fault = fmt::format("ended with {}", WEXITSTATUS(status));
    keep(targets_[its.reader].reader, std::string(its.input, its.size), fault);
    if (Clock::now() < end_) start(job);
  }

  void keep(const Reader& reader, const std::string& input, const std::string& fault) {
    if (!seen_.insert(reader.name + key_of(fault)).second) return;
    const std::string shorter = minimized(reader, input, fault, kMinimizeSeconds);
    fs::create_directories(fs::path(options_.keep) / reader.name);
    const fs::path file = fs::path(options_.keep) / reader.name / hex(content_hash(shorter));
    std::ofstream(file, std::ios::binary) << shorter;
    kept_.push_back(file);
    fmt::print("FAULT {}: {}\n  again: {} --replay {} {}\n", reader.name, fault.substr(0, 600),
               fs::read_symlink("/proc/self/exe").string(), reader.name, file.string());
    if (shorter.size() <= kMostPrinted) fmt::print("  input: {:?}\n", shorter);
    std::fflush(stdout);
  }

  void report() const {
    fmt::print("{:<20} {:>12} {:>12} {:>12} {:>12}\n", "reader", "inputs", "accepted", "refused",
               "slowest, ms");
    Counts all;
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      Counts sum;
      for (int job = 0; job < options_.jobs; ++job) {
        const Counts& own = slots_[job].counts[i];
        sum.inputs += own.inputs;
        sum.accepted += own.accepted;
        sum.slowest_ns = std::max(sum.slowest_ns, own.slowest_ns);
      }
      print(targets_[i].reader.name, sum);
      all.inputs += sum.inputs;
      all.accepted += sum.accepted;
      all.slowest_ns = std::max(all.slowest_ns, sum.slowest_ns);
    }
    print("all", all);
    fmt::print("{:.0f} inputs/s, {} faults kept in {}\n",
               static_cast<double>(all.inputs) / options_.seconds, kept_.size(), options_.keep);
  }

  static void print(const std::string& name, const Counts& counts) {
    fmt::print("{:<20} {:>12} {:>12} {:>12} {:>12.1f}\n", name, counts.inputs, counts.accepted,
               counts.inputs - counts.accepted, static_cast<double>(counts.slowest_ns) * 1e-6);
  }

  const Options& options_;
  std::vector<Target> targets_;
  Slot* slots_ = nullptr;
  Clock::time_point end_;
  std::map<pid_t, int> workers_;
  int starts_ = 0;
  std::set<std::string> seen_;
  std::vector<fs::path> kept_;
};

// ---------------------------------------------------------------- inputs once more

std::size_t replay(const Reader& reader, const std::vector<fs::path>& files) {
  std::size_t faults = 0;
  for (const fs::path& file : files) {
    const std::string fault = fault_of(reader, text_of(file), /*shows_errors=*/true);
    fmt::print("{} {}: {}\n", reader.name, file.string(), fault.empty() ? "as it should" : fault);
    faults += fault.empty() ? 0 : 1;
  }
  return faults;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto value = [&] {
      if (++i >= argc) throw ConfigError(name + " needs a value");
      return std::string(argv[i]);
    };
    if (name == "--seconds")
      options.seconds = std::stod(value());
    else if (name == "--seed")
      options.seed = std::stoull(value());
    else if (name == "--corpus")
      options.corpus = value();
    else if (name == "--keep")
      options.keep = value();
    else if (name == "--reader")
      options.reader = value();
    else if (name == "--without")
      options.without = value();
    else if (name == "--jobs")
      options.jobs = std::max(1, std::stoi(value()));
    else if (name == "--most-seconds")
      most_seconds = std::stod(value());
    else if (name == "--replay-all")
      options.replay_all = true;
    else if (name == "--replay")
      for (options.reader = value(); i + 1 < argc;) options.replay.push_back(value());
    else
      throw ConfigError(fmt::format("unknown option '{}'", name));
  }
  return options;
}

std::size_t run(const Options& options) {
  std::vector<Target> targets = targets_of(options);
  if (!options.replay.empty())
    return replay(targets.front().reader, {options.replay.begin(), options.replay.end()});
  if (!options.replay_all) return Campaign(options, std::move(targets)).run();
  std::size_t faults = 0;
  for (const Target& target : targets)
    faults += replay(target.reader, files_of(options.corpus, target.reader.name));
  return faults;
}

}  // namespace
}  // namespace meshplan::fuzz

int main(int argc, char** argv) {
  try {
    return meshplan::fuzz::run(meshplan::fuzz::parse(argc, argv)) == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "fuzz: {}\n", error.what());
    return 2;
  }
}
