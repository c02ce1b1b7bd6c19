#include "guard/watchdog.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <fmt/format.h>
#include <new>
#include <random>
#include <sstream>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/index.hpp"
#include "core/words.hpp"
#include "guard/guardian.hpp"
#include "guard/guardian_lifeline.hpp"
#include "guard/interrupt_mark.hpp"
#include "guard/spare.hpp"
#include "launch/launcher_line.hpp"
#include "launch/launcher_watch.hpp"
#include "meet/secret.hpp"
#include "os/local_socket.hpp"
#include "os/tcp_socket.hpp"

namespace meshplan::runtime {
namespace {

/// What rank 0 tells all others.
struct Invitation {
  std::uint64_t token = 0;  // names of what its machines share
  Hash key{};               // of its guardians
  std::int32_t port = 0;
  char addresses[512] = {};  // separated by blanks
};

Invitation make_invitation(const JobLayout& layout, Socket& listener) {
  Invitation invitation;
  std::random_device random;
  invitation.token = (std::uint64_t{random()} << 32) | random();
  invitation.key = random_nonce();
  if (layout.num_machines() > 1) {
    listener = try_listen("", 0);
    if (!listener.is_open())
      throw IoError(fmt::format("cannot listen for the guardians of other machines: {}",
                                std::strerror(errno)));
    invitation.port = near_port(listener);
    std::string addresses = layout.host_of_rank[0];
    for (const std::string& address : own_addresses()) addresses += " " + address;
    std::strncpy(invitation.addresses, addresses.c_str(), sizeof(invitation.addresses) - 1);
  }
  return invitation;
}

}  // namespace

/// The post and the slots of one machine, in memory that vanishes with its last user.
class Watchdog::SharedPage {
 public:
  SharedPage(const std::string& name, int num_slots, bool create) : num_slots_(num_slots) {
    const int file =
        shm_open(name.c_str(), create ? O_CREAT | O_EXCL | O_RDWR : O_RDWR, S_IRUSR | S_IWUSR);
    if (file < 0) fail("open", name);
    const bool sized = !create || ftruncate(file, static_cast<off_t>(size())) == 0;
    memory_ =
        sized ? mmap(nullptr, size(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    const int error = errno;
    ::close(file);
    errno = error;
    if (memory_ == MAP_FAILED) fail("map", name);
    if (!create) return;
    new (&post()) GuardPost;
    for (StatusSlot& slot : slots()) new (&slot) StatusSlot;
  }
  ~SharedPage() { munmap(memory_, size()); }
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;

  GuardPost& post() { return *static_cast<GuardPost*>(memory_); }
  std::span<StatusSlot> slots() {
    return {reinterpret_cast<StatusSlot*>(&post() + 1), static_cast<std::size_t>(num_slots_)};
  }

 private:
  std::size_t size() const {
    return sizeof(GuardPost) + static_cast<std::size_t>(num_slots_) * sizeof(StatusSlot);
  }
  [[noreturn]] static void fail(std::string_view what, const std::string& name) {
    throw IoError(
        fmt::format("cannot {} the shared status page {}: {}", what, name, std::strerror(errno)));
  }

  int num_slots_;
  void* memory_ = nullptr;
};

Watchdog::Watchdog(Communicator& world, const JobLayout& layout, const WatchdogOptions& options) {
  Socket listener;
  Invitation invitation;
  if (layout.rank == 0) invitation = make_invitation(layout, listener);
  world.broadcast({&invitation, static_cast<std::int64_t>(sizeof(Invitation)), DType::U8}, 0)
      .wait();

  const std::vector<int> local = layout.ranks_on(layout.machine());
  const int num_local = static_cast<int>(local.size());
  const bool first = layout.rank == local.front();
  const std::string name = fmt::format("/meshplan-{}-{}", hex(invitation.token), layout.machine());
  int lifelines = -1;
  if (first) {
    page_ = std::make_unique<SharedPage>(name, num_local, true);
    lifelines = listen_locally(name);
  }
  world.barrier().wait();
  if (!first) page_ = std::make_unique<SharedPage>(name, num_local, false);

  const auto place = std::ranges::find(local, layout.rank) - local.begin();
  slot_ = &page_->slots()[static_cast<std::size_t>(place)];
  slot_->rank.store(layout.rank);
  slot_->pid.store(getpid());
  board_.emplace(*slot_);
  board_->set("starting");
  slot_->starter.store(process_not_to_outlive());
  const int lifeline = connect_locally(name);
  world.barrier().wait();
  interrupt_mark_ = std::make_unique<InterruptMark>(*slot_);
  if (first) {
    shm_unlink(name.c_str());
    start_guardian({.post = &page_->post(),
                    .slots = page_->slots().data(),
                    .num_slots = num_local,
                    .lifeline_listener = lifelines,
                    .host_of_rank = layout.host_of_rank,
                    .machine_of_rank = layout.machine_of_rank,
                    .hang_timeout = options.hang_timeout,
                    .report_socket = options.report_socket,
                    .network = {layout.num_machines(), layout.machine(), listener.get(),
                                invitation.port, invitation.key, words_of(invitation.addresses)}});
    ::close(lifelines);
  }
  lifeline_ = std::make_unique<GuardianLifeline>(lifeline, page_->post(), page_->slots(),
                                                 layout.host_of_rank[at(layout.rank)],
                                                 options.report_socket);
  launcher_line().say(LauncherMessage::Kind::Watched, layout.rank);
  launcher_line().hang_up();
}

Watchdog::~Watchdog() {
  slot_->state.store(std::uncaught_exceptions() > 0 ? RankState::Failed : RankState::Finished);
  lifeline_.reset();
}

}  // namespace meshplan::runtime
