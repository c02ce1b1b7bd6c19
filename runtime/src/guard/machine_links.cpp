#include "guard/machine_links.hpp"

#include <algorithm>
#include <ranges>
#include <utility>

namespace meshplan::runtime {
namespace {

constexpr int kRoot = 0;
constexpr Seconds kBetweenCalls{0.5};
constexpr Seconds kOfOneCall{0.5};
constexpr Seconds kToHangUp{1.0};

}  // namespace

MachineLinks::MachineLinks(const GuardianNetwork& network) : network_(network) {
  if (network_.num_machines > 1 && is_root())
    door_.emplace(Socket(network_.listener), secret(), Purpose::Guardians, network_.machine);
}

bool MachineLinks::reach_root(Seconds timeout, double now_s) {
  const Identity identity{.from = network_.machine,
                          .to = kRoot,
                          .size = network_.num_machines,
                          .purpose = Purpose::Guardians};
  const Deadline deadline(timeout);
  while (!has_root()) {
    Socket socket = connect_to_any(network_.addresses, network_.port, deadline);
    const auto secret_of_job = [this] { return secret(); };
    if (socket.is_open() &&
        introduce(socket, secret_of_job, identity, deadline).result == Call::Result::Met)
      connect(kRoot, std::move(socket), now_s);
    else if (deadline.passed())
      return false;
    else
      ::poll(nullptr, 0, 50);
  }
  return true;
}

bool MachineLinks::expects_root() const {
  const auto root = peers_.find(kRoot);
  return root != peers_.end() && !root->second.departed;
}

bool MachineLinks::has_root() const {
  return expects_root() && peers_.at(kRoot).link.is_open();
}

void MachineLinks::connect(int machine, Socket socket, double now_s) {
  peers_.insert_or_assign(machine, Peer{PeerLink(std::move(socket)), now_s});
}

void MachineLinks::add_to(std::vector<pollfd>& fds) const {
  for (const auto& [machine, peer] : peers_)
    fds.push_back({peer.link.is_open() ? peer.link.socket() : -1, POLLIN, 0});
  if (door_) door_->add_to(fds);
}

void MachineLinks::send(const Frame& frame) {
  for (auto& [machine, peer] : peers_)
    if (peer.link.is_open()) peer.link.send(frame);
}

/// Only who has been connected before: a root that cannot be reached from here is left alone.
void MachineLinks::call_again(double now_s) {
  if (!expects_root() || has_root()) return;
  if (now_s - called_s_ < kBetweenCalls.value) return;
  called_s_ = now_s;
  reach_root(kOfOneCall, now_s);
}

std::vector<Frame> MachineLinks::receive(double now_s) {
  if (door_)
    for (Guest& guest : door_->guests())
      if (guest.identity.from > kRoot && guest.identity.from < network_.num_machines)
        connect(guest.identity.from, std::move(guest.socket), now_s);
  std::vector<Frame> all;
  for (auto& [machine, peer] : peers_)
    for (Frame& frame : peer.link.receive()) {
      frame.machine = machine;
      peer.heard_s = now_s;
      peer.departed = peer.departed || frame.kind == Frame::Kind::Bye;
      all.push_back(frame);
    }
  call_again(now_s);
  return all;
}

std::optional<int> MachineLinks::lost_machine(double now_s) {
  for (auto& [machine, peer] : peers_) {
    if (peer.departed || now_s - peer.heard_s <= kSilenceOfMachine.value) continue;
    peer.departed = true;
    return machine;
  }
  return std::nullopt;
}

bool MachineLinks::all_departed() const {
  return std::ranges::count_if(peers_, [](const auto& one) { return one.second.departed; }) ==
         network_.num_machines - 1;
}

void MachineLinks::drain() {
  const Deadline deadline(kToHangUp);
  const auto is_open = [](const auto& one) { return one.second.link.is_open(); };
  while (std::ranges::any_of(peers_, is_open) && !deadline.passed()) {
    for (auto& [machine, peer] : peers_) peer.link.receive();
    ::poll(nullptr, 0, 5);
  }
}

}  // namespace meshplan::runtime
