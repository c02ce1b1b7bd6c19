// Schedules in the CSV form of torch.distributed.pipelining, so that they can be exchanged with it.
#include "program/schedule/csv.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <optional>
#include <set>

#include "core/error.hpp"
#include "core/index.hpp"
#include "core/line.hpp"

namespace meshplan::program {
namespace {

constexpr std::string_view kOverlap = "OVERLAP_F_B";
// What PyTorch adds for its own executor.
constexpr std::string_view kCommunication[] = {"SEND_F",  "RECV_F",  "SEND_B",     "RECV_B",
                                               "UNSHARD", "RESHARD", "REDUCE_GRAD"};
constexpr int kLargest = 1 << 20;  // stages and micro-batches: larger ones are mistakes

struct Letter {
  char letter;
  TaskKind kind;
};
constexpr Letter kLetters[] = {{'F', TaskKind::Forward},
                               {'B', TaskKind::BackwardFull},
                               {'I', TaskKind::BackwardInput},
                               {'W', TaskKind::BackwardWeight}};

std::string text_of(const Schedule& schedule, int stage, const Task& task) {
  if (task.kind == TaskKind::Overlapped) {
    const TaskParts parts = parts_of(task);
    return fmt::format("({};{}){}", text_of(schedule, stage, parts.front()),
                       text_of(schedule, stage, parts.back()), kOverlap);
  }
  const auto* letter = std::ranges::find(kLetters, task.kind, &Letter::kind);
  return fmt::format("{}{}{}",
                     virtual_stage(schedule.placement, schedule.num_stages(), {stage, task.chunk}),
                     letter->letter, task.microbatch);
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\"";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// A task whose chunk is still the number of a virtual stage.
using Cell = Task;

class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  Schedule run() {
    std::vector<std::vector<Cell>> rows;
    for (const std::string_view line : split(text_, '\n')) {
      ++line_;
      if (trimmed(line).empty()) continue;
      rows.emplace_back();
      column_ = 0;
      for (const std::string_view cell : split(line, ',')) {
        ++column_;
        if (const auto task = read_cell(trimmed(cell))) rows.back().push_back(*task);
      }
    }
    if (rows.empty()) throw ConfigError(file_ + ": no line holds a task; expected one per stage");
    return placed(std::move(rows));
  }

 private:
  [[noreturn]] void fail(std::string_view cell, std::string_view rule) const {
    throw ConfigError(fmt::format("{}: line {}, cell {}: '{}' {}", file_, line_, column_,
                                  short_line(cell), rule));
  }

  int number(std::string_view digits, std::string_view cell) const {
    int value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value < 0 ||
        value > kLargest)
      fail(cell, "is not a stage, one of F, B, I or W, and a micro-batch, such as 2F0");
    return value;
  }

  /// Absent: idle, or communication.
  std::optional<Cell> read_cell(std::string_view cell) const {
    if (cell.empty()) return std::nullopt;
    if (cell.front() == '(') return read_overlapped(cell);
    for (const std::string_view name : kCommunication)
      if (cell.find(name) != std::string_view::npos) return std::nullopt;
    const std::size_t place = cell.find_first_of("FBIW");
    if (place == std::string_view::npos)
      fail(cell, "is not a stage, one of F, B, I or W, and a micro-batch, such as 2F0");
    const auto* letter = std::ranges::find(kLetters, cell[place], &Letter::letter);
    return Cell{.kind = letter->kind,
                .microbatch = number(cell.substr(place + 1), cell),
                .chunk = number(cell.substr(0, place), cell)};
  }

  Cell read_overlapped(std::string_view cell) const {
    const std::size_t end = cell.find(')');
    if (end == std::string_view::npos || cell.substr(end + 1) != kOverlap)
      fail(cell, "is not a forward with a backward, such as (0F1;3B0)OVERLAP_F_B");
    const auto parts = split(cell.substr(1, end - 1), ';');
    std::vector<Cell> tasks;
    for (const std::string_view part : parts)
      if (const auto task = read_cell(trimmed(part))) tasks.push_back(*task);
    if (tasks.size() != 2 || tasks[0].kind != TaskKind::Forward ||
        tasks[1].kind != TaskKind::BackwardFull)
      fail(cell, "does not overlap one forward with one full backward");
    return {.kind = TaskKind::Overlapped,
            .microbatch = tasks[0].microbatch,
            .chunk = tasks[0].chunk,
            .backward_microbatch = tasks[1].microbatch,
            .backward_chunk = tasks[1].chunk};
  }

  /// Virtual stages become chunks of their ranks, in a loop or a V.
  Schedule placed(std::vector<std::vector<Cell>> rows) const {
    const int num_stages = static_cast<int>(rows.size());
    int last = 0;
    for (const auto& row : rows)
      for (const Cell& cell : row)
        for (const Task& part : parts_of(cell)) last = std::max(last, part.chunk);
    Schedule schedule{.tasks = std::move(rows), .num_chunks = last / num_stages + 1};
    for (const ChunkPlacement placement : {ChunkPlacement::Loop, ChunkPlacement::V}) {
      schedule.placement = placement;
      if (fits(schedule)) return with_chunks(std::move(schedule));
    }
    schedule.placement = ChunkPlacement::Loop;
    throw ConfigError(file_ + ": " + misplaced(schedule));
  }

  static std::optional<std::pair<int, int>> first_stranger(const Schedule& schedule) {
    for (int stage = 0; stage < schedule.num_stages(); ++stage)
      for (const Cell& cell : schedule.tasks[at(stage)])
        for (const Task& part : parts_of(cell))
          if (place_of(schedule.placement, schedule.num_stages(), part.chunk).stage != stage)
            return std::pair(stage, part.chunk);
    return std::nullopt;
  }
  static bool fits(const Schedule& schedule) { return !first_stranger(schedule); }

  static std::string misplaced(const Schedule& schedule) {
    const auto [stage, found] = *first_stranger(schedule);
    return fmt::format(
        "rank {} runs virtual stage {}; with {} ranks the stages must be laid out in a loop (rank "
        "r holds r, r + {}, ...) or a V (rank r holds r and {} - r)",
        stage, found, schedule.num_stages(), schedule.num_stages(), 2 * schedule.num_stages() - 1);
  }

  static Schedule with_chunks(Schedule schedule) {
    for (auto& tasks : schedule.tasks)
      for (Task& task : tasks) {
        task.chunk = place_of(schedule.placement, schedule.num_stages(), task.chunk).chunk;
        task.backward_chunk =
            task.kind == TaskKind::Overlapped
                ? place_of(schedule.placement, schedule.num_stages(), task.backward_chunk).chunk
                : 0;
      }
    return schedule;
  }

  std::string_view text_;
  const std::string& file_;
  int line_ = 0;
  int column_ = 0;
};

}  // namespace

std::string to_csv(const Schedule& schedule) {
  std::string text;
  for (int stage = 0; stage < schedule.num_stages(); ++stage) {
    std::string_view separator;
    for (const Task& task : schedule.tasks[at(stage)]) {
      text += separator;
      text += text_of(schedule, stage, task);
      separator = ",";
    }
    text += "\n";
  }
  return text;
}

Schedule parse_schedule_csv(std::string_view text, const std::string& file) {
  return Reader(text, file).run();
}

}  // namespace meshplan::program
