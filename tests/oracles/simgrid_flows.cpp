// The engine's sharing of links against SimGrid's flow model (CM02 with all factors 1; Casanova et
// al. 2014, "Versatile, scalable, and accurate simulation of distributed applications and
// platforms"): random flows over random links, started at random times, end at the same times.
#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <limits>
#include <numeric>
#include <random>
#include <simgrid/s4u.hpp>

#include "engine/shared_resources.hpp"

namespace meshplan::sim {
namespace {

struct Flow {
  double start = 0;
  double bytes = 0;
  std::vector<int> links;
};

struct Network {
  std::vector<double> capacity;  // bytes/s
  std::vector<Flow> flows;
};

Network random_network(unsigned seed, int num_links, int num_flows) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> rate(1e8, 1e9), size(1e8, 4e9), start(0, 8);
  Network network;
  for (int l = 0; l < num_links; ++l) network.capacity.push_back(rate(random));
  std::vector<int> all(static_cast<std::size_t>(num_links));
  std::iota(all.begin(), all.end(), 0);
  for (int f = 0; f < num_flows; ++f) {
    std::ranges::shuffle(all, random);
    const auto length = static_cast<std::ptrdiff_t>(1 + random() % 3);
    network.flows.push_back({start(random), size(random), {all.begin(), all.begin() + length}});
  }
  return network;
}

/// When each flow ends, by the engine's resources. A flow asks every link for as much as the
/// fastest link carries, so nothing but the links limits it.
std::vector<double> ours(const Network& network) {
  SharedResources resources;
  double fastest = 0;
  for (const double capacity : network.capacity) {
    resources.add_resource(capacity);
    fastest = std::max(fastest, capacity);
  }
  const std::size_t count = network.flows.size();
  resources.resize_activities(count);
  std::vector<UsageSpan> usages;
  for (const Flow& flow : network.flows) {
    std::vector<Usage> used;
    for (const int link : flow.links) used.push_back({link, fastest});
    usages.push_back(resources.add_usages(used));
  }
  std::vector<double> ends(count, 0);
  std::vector<bool> begun(count, false);
  double now = 0;
  while (true) {
    double next = std::numeric_limits<double>::infinity();
    std::size_t which = count;
    for (std::size_t f = 0; f < count; ++f) {
      const bool active = resources.is_active(static_cast<int>(f));
      if (begun[f] && !active) continue;
      const double when =
          active ? resources.finish_time(static_cast<int>(f)) : network.flows[f].start;
      if (when < next) {
        next = when;
        which = f;
      }
    }
    if (which == count) return ends;
    now = next;
    const int flow = static_cast<int>(which);
    if (begun[which]) {
      resources.stop(flow, now);
      ends[which] = now;
    } else {
      begun[which] = true;
      resources.start(flow, usages[which], network.flows[which].bytes / fastest, now);
    }
    resources.settle(now);
    resources.clear_changed();
  }
}

namespace sg4 = simgrid::s4u;

/// SimGrid's times of the same flows. An engine lives as long as its process, so all networks are
/// one platform: they share nothing.
std::vector<std::vector<double>> simgrid(const std::vector<Network>& networks) {
  int argc = 1;
  std::string name = "oracle";
  char* argv[] = {name.data(), nullptr};
  sg4::Engine engine(&argc, argv);
  for (const char* setting :
       {"network/model:CM02", "network/bandwidth-factor:1", "network/latency-factor:1",
        "network/weight-S:0", "network/crosstraffic:0", "network/TCP-gamma:0"})
    sg4::Engine::set_config(setting);
  sg4::NetZone* zone = sg4::create_full_zone("world");
  std::vector<std::vector<double>> ends;
  for (std::size_t n = 0; n < networks.size(); ++n) {
    ends.emplace_back(networks[n].flows.size(), 0.0);
    std::vector<sg4::Link*> links;
    for (std::size_t l = 0; l < networks[n].capacity.size(); ++l)
      links.push_back(zone->create_link(fmt::format("link-{}-{}", n, l), networks[n].capacity[l])
                          ->set_latency(0)
                          ->seal());
    for (std::size_t f = 0; f < networks[n].flows.size(); ++f) {
      const Flow& flow = networks[n].flows[f];
      sg4::Host* from = zone->create_host(fmt::format("from-{}-{}", n, f), 1e9)->seal();
      sg4::Host* to = zone->create_host(fmt::format("to-{}-{}", n, f), 1e9)->seal();
      std::vector<sg4::LinkInRoute> route;
      for (const int link : flow.links) route.emplace_back(links[static_cast<std::size_t>(link)]);
      zone->add_route(from->get_netpoint(), to->get_netpoint(), nullptr, nullptr, route);
      const std::string box = fmt::format("box-{}-{}", n, f);
      sg4::Actor::create("sender", from, [flow, box] {
        static int payload = 0;
        sg4::this_actor::sleep_until(flow.start);
        sg4::Mailbox::by_name(box)->put(&payload, static_cast<std::uint64_t>(flow.bytes));
      });
      double* end = &ends[n][f];
      sg4::Actor::create("receiver", to, [box, end] {
        sg4::Mailbox::by_name(box)->get<int>();
        *end = sg4::Engine::get_clock();
      });
    }
  }
  zone->seal();
  engine.run();
  return ends;
}

}  // namespace

TEST_CASE("Flows end when SimGrid says that they do", "[sim][oracle]") {
  std::vector<Network> networks;
  for (unsigned seed = 1; seed <= 12; ++seed)
    networks.push_back(
        random_network(seed, 3 + static_cast<int>(seed), 4 * static_cast<int>(seed)));
  const auto expected = simgrid(networks);
  for (std::size_t n = 0; n < networks.size(); ++n) {
    const std::vector<double> ends = ours(networks[n]);
    for (std::size_t f = 0; f < ends.size(); ++f) {
      INFO("network " << n << ", flow " << f);
      // SimGrid's own precision: 1e-5 of what remains of a flow (precision/work-amount) and whole
      // bytes.
      CHECK(ends[f] == Approx(expected[n][f]).epsilon(1e-6));
    }
  }
}

}  // namespace meshplan::sim
